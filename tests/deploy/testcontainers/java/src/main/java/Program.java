import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Start the image with both Kafka modules of testcontainers, produce one record to each and consume it. */
public final class Program {
    public static void main(String[] arguments) throws Exception {
        DockerImageName image = DockerImageName.parse(System.getenv("IMAGE"));
        try (KafkaContainer kafka = new KafkaContainer(image.asCompatibleSubstituteFor("apache/kafka"))) {
            kafka.start();
            produceAndConsume(kafka.getBootstrapServers(), "apache/kafka");
        }
        try (ConfluentKafkaContainer kafka =
                new ConfluentKafkaContainer(image.asCompatibleSubstituteFor("confluentinc/cp-kafka"))) {
            kafka.start();
            produceAndConsume(kafka.getBootstrapServers(), "confluentinc/cp-kafka");
        }
    }

    private static void produceAndConsume(String servers, String module) throws Exception {
        Map<String, Object> producing = Map.of("bootstrap.servers", servers);
        try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", "one", "from Java")).get();
        }
        Map<String, Object> consuming =
                Map.of("bootstrap.servers", servers, "group.id", "java", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (!record.value().equals("from Java")) {
                        throw new AssertionError("unexpected record " + record);
                    }
                    System.out.println("java: one record produced and consumed, module for " + module);
                    return;
                }
            }
        }
        throw new AssertionError("no record within 60 seconds");
    }
}
