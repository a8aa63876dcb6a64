// Takes orders, writes an invoice for each, and finally checks that no order is without one.
//
//     npm ci && kraft run -- node app.js [ORDERS [PER_SECOND]]
//
// Exit code 0: every order has its invoice. 1: some have none.

const { Kafka, logLevel } = require("kafkajs");
const { setTimeout: sleep } = require("node:timers/promises");

const MS_MAX = 120_000;
const kafka = new Kafka({
  brokers: process.env.KAFKA_BOOTSTRAP_SERVERS.split(","),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, maxRetryTime: 2_000, retries: 60 }, // also while a leader is elected
});

async function createTopics() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({
    topics: [
      { topic: "orders", numPartitions: 3 },
      { topic: "invoices", numPartitions: 1 },
    ],
  });
  await admin.disconnect();
}

async function openProducer() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  return producer;
}

async function takeOrders(count, perSecond) {
  const producer = await openProducer();
  for (let number = 0; number < count; number++) {
    const message = { key: `${number}`, value: `order ${number}` };
    await Promise.all([producer.send({ topic: "orders", messages: [message] }), sleep(1000 / perSecond)]);
  }
  await producer.disconnect();
}

// Passes each batch of a topic to `take` until all keys were seen or the time is over. Returns the number of keys seen.
// Offsets are committed after `take`: at least once.
async function read(topic, groupId, count, take) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10_000, maxWaitTimeInMs: 500 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const seen = new Set();
  await new Promise((resolve) => {
    setTimeout(resolve, MS_MAX).unref();
    consumer.run({
      eachBatch: async ({ batch }) => {
        await take(batch.messages);
        for (const message of batch.messages) seen.add(message.key.toString());
        if (seen.size >= count) resolve();
      },
    });
  });
  await consumer.disconnect();
  return seen.size;
}

async function writeInvoices(count) {
  const producer = await openProducer();
  await read("orders", "billing", count, (orders) =>
    producer.send({
      topic: "invoices",
      messages: orders.map((order) => ({ key: order.key, value: `invoice for ${order.value}` })),
    }),
  );
  await producer.disconnect();
}

async function main(count = 200, perSecond = 100) {
  await createTopics();
  await Promise.all([takeOrders(count, perSecond), writeInvoices(count)]);
  const found = await read("invoices", `audit-${process.pid}`, count, async () => {});
  console.log(`${count} orders, ${found} with an invoice`);
  return found === count ? 0 : 1;
}

main(...process.argv.slice(2).map(Number)).then(
  (code) => process.exit(code),
  (problem) => {
    console.error(problem);
    process.exit(1);
  },
);
