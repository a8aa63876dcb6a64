// Transactional commands, which transactions/commands.py describes.
"use strict";

const readline = require("readline");

const COPIED = "copied-";
const FENCED = ["INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"]; // the first one by the versions that KafkaJS knows

// KafkaJS keeps the order of a producer only if at most one request is in flight.
const transactional = (kafka, transactionalId) =>
  kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 });

// Of an end that failed, KafkaJS does not know the outcome, and neither its transaction nor its producer can be used again.
function answer(verb, error) {
  if (FENCED.includes(error.type)) return `fenced ${error}`;
  if (verb === "commit" || verb === "abort") return `unknown ${error}`;
  return verb === "send" ? `abortable ${error}` : `failed ${error}`;
}

async function transact({ kafka, topic, transactionalId, say }) {
  const producer = transactional(kafka, transactionalId);
  await producer.connect();
  let transaction;
  const commands = {
    // A transaction without records is ended without a request.
    init: async () => (await producer.transaction()).abort(),
    begin: async () => (transaction = await producer.transaction()),
    send: async (partition, value) =>
      transaction.send({ topic, acks: -1, messages: [{ partition: Number(partition), value }] }),
    commit: async () => transaction.commit(),
    abort: async () => transaction.abort(),
  };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.split(" ");
    say(await commands[verb](...words).then(() => "done", (error) => answer(verb, error)));
  }
}

async function copy({ kafka, source, target, group, transactionalId, say, asked_to_end }) {
  const producer = transactional(kafka, transactionalId);
  await producer.connect();
  await (await producer.transaction()).abort();
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout: 2_000,
    heartbeatInterval: 500,
    maxWaitTimeInMs: 100,
    metadataMaxAge: 200,
  });
  const crashed = new Promise((_, reject) => consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error)));
  await consumer.connect();
  await consumer.subscribe({ topic: source, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: true,
    eachBatch: async ({ batch }) => {
      const { partition } = batch;
      const transaction = await producer.transaction();
      const messages = batch.messages.map(({ value }) => ({ partition, value: `${COPIED}${value}` }));
      await transaction.send({ topic: target, acks: -1, messages });
      say("sent");
      const offset = (BigInt(batch.lastOffset()) + 1n).toString();
      await transaction.sendOffsets({
        consumerGroupId: group,
        topics: [{ topic: source, partitions: [{ partition, offset }] }],
      });
      say("offsets");
      await transaction.commit();
      say("committed");
    },
  });
  await Promise.race([asked_to_end, crashed]);
  await consumer.disconnect();
  await producer.disconnect();
}

// KafkaJS only reads in groups: use a group of its own, which commits nothing. When a broker dies it begins again at the
// start.
async function committed({ kafka, topic, say, asked_to_end }) {
  const said = new Map(); // by partition, the last offset
  const consumer = kafka.consumer({
    groupId: `committed-${topic}-${process.pid}`,
    readUncommitted: false,
    maxWaitTimeInMs: 100,
    metadataMaxAge: 200,
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      if (BigInt(message.offset) <= (said.get(partition) ?? -1n)) return;
      said.set(partition, BigInt(message.offset));
      say(message.value.toString());
    },
  });
  await asked_to_end;
  await consumer.disconnect();
}

module.exports = { transact, copy, committed };
