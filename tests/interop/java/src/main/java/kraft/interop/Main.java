package kraft.interop;

import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Verbs of the Java client, one per run: what each takes and says stands in programs.py. */
public final class Main {
    private static final int PAUSE_MS = 5;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        String topic = arguments[2];
        List<String> rest = Arrays.asList(arguments).subList(3, arguments.length);
        switch (arguments[0]) {
            case "create" -> create(bootstrap, topic);
            case "produce" -> produce(bootstrap, topic, rest.get(0), Integer.parseInt(rest.get(1)));
            case "stream" -> stream(bootstrap, topic, standardInputEnds());
            case "read" -> read(bootstrap, topic);
            case "offsets" -> offsets(bootstrap, topic, rest);
            case "member" -> Member.work(bootstrap, topic, rest, standardInputEnds());
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

    private static void stream(String bootstrap, String topic, AtomicBoolean ended) throws Exception {
        try (KafkaProducer<String, String> producer = producer(bootstrap, "none")) {
            for (int i = 0; !ended.get(); i++) {
                String value = "stream-" + i;
                producer.send(new ProducerRecord<>(topic, 0, null, value), (metadata, error) -> {
                    synchronized (System.out) {
                        System.out.println(error == null ? value : "error " + error);
                    }
                });
                Thread.sleep(PAUSE_MS);
            }
        }
    }

    static KafkaConsumer<String, String> consumer(String bootstrap, Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        properties.putAll(settings);
        return new KafkaConsumer<>(properties);
    }

    private static void read(String bootstrap, String topic) {
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, Map.of())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofMillis(500)).forEach(record -> System.out.println(record.value()));
            }
        }
    }

    private static void offsets(String bootstrap, String topic, List<String> timestamps) {
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, Map.of())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            for (String timestamp : timestamps) {
                OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Map.of(partition, Long.parseLong(timestamp))).get(partition);
                System.out.println(found == null ? "none" : found.offset());
            }
        }
    }

    /** Becomes true when nobody can write to this program any more. */
    static AtomicBoolean standardInputEnds() {
        AtomicBoolean ended = new AtomicBoolean();
        Thread waiter = new Thread(() -> {
            try {
                System.in.transferTo(java.io.OutputStream.nullOutputStream());
            } catch (IOException gone) {
                // standard input is gone: that is an end as well
            }
            ended.set(true);
        });
        waiter.setDaemon(true);
        waiter.start();
        return ended;
    }
}
