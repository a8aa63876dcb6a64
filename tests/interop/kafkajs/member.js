// A group member that runs until standard input ends.
"use strict";

const { PartitionAssigners } = require("kafkajs");

const ASSIGNORS = { roundrobin: PartitionAssigners.roundRobin };

async function member({ kafka, topic, group, assignor, session_ms, say, asked_to_end }) {
  const consumer = kafka.consumer({
    groupId: group,
    partitionAssigners: [ASSIGNORS[assignor]],
    sessionTimeout: session_ms,
    heartbeatInterval: 500,
    maxWaitTimeInMs: 100,
    metadataMaxAge: 200, // it looks for a new leader at that age; for a new coordinator it crashes and joins anew
  });
  const owns = (partitions) => say(["owned", ...partitions].join(" "));
  consumer.on(consumer.events.REBALANCING, () => owns([]));
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => owns(payload.memberAssignment[topic] ?? []));
  const crashed = new Promise((_, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error));
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommitInterval: 200,
    eachMessage: async ({ message }) => say(`read ${message.value}`),
  });
  await Promise.race([asked_to_end, crashed]);
  await consumer.disconnect();
}

module.exports = { member };
