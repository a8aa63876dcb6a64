package kraft.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Verbs of the Java client, one per run: create, produce, stream (until a line comes on standard input), read. */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        String topic = arguments[2];
        switch (arguments[0]) {
            case "create" -> create(bootstrap, topic);
            case "produce" -> produce(bootstrap, topic, arguments[3], Integer.parseInt(arguments[4]));
            case "stream" -> stream(bootstrap, topic);
            case "read" -> read(bootstrap, topic, Integer.parseInt(arguments[3]));
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void create(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", (Object) bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 3))).all().get();
        }
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String compression) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("compression.type", compression);
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        return new KafkaProducer<>(properties);
    }

    private static void produce(String bootstrap, String topic, String compression, int count) throws Exception {
        try (KafkaProducer<String, String> producer = producer(bootstrap, compression)) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, compression + "-" + i)).get();
            }
        }
    }

    private static void stream(String bootstrap, String topic) throws Exception {
        AtomicBoolean stopped = new AtomicBoolean();
        Thread waiter = new Thread(() -> {
            try {
                new BufferedReader(new InputStreamReader(System.in)).readLine();
            } catch (java.io.IOException ended) {
                // standard input is gone: stop as well
            }
            stopped.set(true);
        });
        waiter.setDaemon(true);
        waiter.start();
        try (KafkaProducer<String, String> producer = producer(bootstrap, "none")) {
            for (int i = 0; !stopped.get(); i++) {
                String value = "stream-" + i;
                producer.send(new ProducerRecord<>(topic, 0, null, value), (metadata, error) -> {
                    synchronized (System.out) {
                        System.out.println(error == null ? value : "error " + error);
                    }
                });
                Thread.sleep(5);
            }
        }
    }

    private static void read(String bootstrap, String topic, int expected) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofMillis(500)).forEach(record -> System.out.println(record.value()));
            }
        }
    }
}
