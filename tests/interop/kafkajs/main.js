// Commands of KafkaJS, one per run; programs.py describes their arguments and output.
"use strict";

const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require("kafkajs");
const SnappyCodec = require("kafkajs-snappy");
const lz4 = require("lz4js");
const { member } = require("./member");
const { transact, copy, committed } = require("./transactions");

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
});

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
};
const PAUSE_MS = 5;

const say = (line) => process.stdout.write(`${line}\n`);
const standard_input_ends = () => new Promise((resolve) => process.stdin.on("end", resolve).resume());

async function within(client, work) {
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.disconnect();
  }
}

const verbs = {
  create: (kafka, topic) =>
    within(kafka.admin(), (admin) =>
      admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: 1, replicationFactor: 3 }] }),
    ),

  produce: (kafka, topic, codec, count) =>
    within(kafka.producer(), async (producer) => {
      for (let number = 0; number < Number(count); number++) {
        const messages = [{ partition: 0, value: `${codec}-${number}` }];
        await producer.send({ topic, acks: -1, compression: CODECS[codec], messages });
      }
    }),

  // KafkaJS keeps the order of an idempotent producer only if at most one request is in flight.
  stream: (kafka, topic) =>
    within(kafka.producer({ idempotent: true, maxInFlightRequests: 1 }), async (producer) => {
      let ended = false;
      standard_input_ends().then(() => (ended = true));
      for (let number = 0; !ended; number++) {
        const value = `stream-${number}`;
        await producer.send({ topic, acks: -1, messages: [{ partition: 0, value }] });
        say(value);
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    }),

  // KafkaJS only reads in groups: use a group of its own, from the start to the current end.
  read: async (kafka, topic) => {
    const [{ high }] = await within(kafka.admin(), (admin) => admin.fetchTopicOffsets(topic));
    if (high === "0") return;
    const alone = { groupId: `read-${topic}-${process.pid}`, maxWaitTimeInMs: 100 };
    await within(kafka.consumer(alone), async (consumer) => {
      await consumer.subscribe({ topic, fromBeginning: true });
      await new Promise((resolve, reject) => {
        consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
        consumer.on(consumer.events.END_BATCH_PROCESS, ({ payload }) => {
          if (BigInt(payload.lastOffset) + 1n >= BigInt(high)) resolve();
        });
        consumer.run({ autoCommit: false, eachMessage: async ({ message }) => say(message.value.toString()) });
      });
    });
  },

  offsets: (kafka, topic, ...timestamps) =>
    within(kafka.admin(), async (admin) => {
      for (const timestamp of timestamps) {
        const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp);
        say(offset);
      }
    }),

  member: (kafka, topic, group, assignor, session_ms) =>
    member({ kafka, topic, group, assignor, session_ms: Number(session_ms), say, asked_to_end: standard_input_ends() }),

  transact: (kafka, topic, transactionalId) => transact({ kafka, topic, transactionalId, say }),

  copy: (kafka, source, target, group, transactionalId) =>
    copy({ kafka, source, target, group, transactionalId, say, asked_to_end: standard_input_ends() }),

  committed: (kafka, topic) => committed({ kafka, topic, say, asked_to_end: standard_input_ends() }),
};

async function main([verb, bootstrap, ...rest]) {
  const kafka = new Kafka({
    clientId: "kafkajs",
    brokers: bootstrap.split(","),
    logLevel: logLevel.ERROR,
    logCreator: () => ({ log }) => console.error(`${log.timestamp} ${log.message}`), // not to standard output
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 50 },
  });
  await verbs[verb](kafka, ...rest);
  process.exit(0);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
