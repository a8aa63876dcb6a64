// Start the image with testcontainers, produce one record and consume it.
const { KafkaContainer } = require("@testcontainers/kafka");
const { Kafka, logLevel } = require("kafkajs");

async function main() {
  // Also 9092: unlike Docker, podman lists each port that an image exposes among those to be bound.
  const container = await new KafkaContainer(process.env.IMAGE).withKraft().withExposedPorts(9092).start();
  const kafka = new Kafka({ brokers: [`${container.getHost()}:${container.getMappedPort(9093)}`], logLevel: logLevel.ERROR });
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ key: "one", value: "from Node" }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: "node" });
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  const message = await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({ eachMessage: async ({ message }) => resolve(message) });
  });
  await consumer.disconnect();
  await container.stop();
  if (message.value.toString() !== "from Node") throw new Error(`unexpected record ${message.value}`);
  console.log("node: one record produced and consumed");
}

main().catch((problem) => {
  console.error(problem);
  process.exit(1);
});
