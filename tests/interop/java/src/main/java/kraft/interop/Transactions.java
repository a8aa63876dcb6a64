package kraft.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactional commands of the Java client, one per run; transactions/commands.py describes them. */
public final class Transactions {
    private static final int PARTITIONS = 2;
    private static final Duration POLL = Duration.ofMillis(100);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        switch (arguments[0]) {
            case "transact" -> transact(bootstrap, arguments[2], arguments[3]);
            case "copy" -> copy(bootstrap, arguments[2], arguments[3], arguments[4], arguments[5]);
            case "committed" -> committed(bootstrap, arguments[2]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String transactionalId) {
        return new KafkaProducer<>(Map.of(
            "bootstrap.servers", (Object) bootstrap,
            "transactional.id", transactionalId,
            "key.serializer", StringSerializer.class,
            "value.serializer", StringSerializer.class));
    }

    private static void transact(String bootstrap, String topic, String transactionalId) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<String, String> producer = producer(bootstrap, transactionalId)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                System.out.println(answer(producer, topic, line.split(" ")));
            }
        }
    }

    private static String answer(KafkaProducer<String, String> producer, String topic, String[] words) {
        try {
            switch (words[0]) {
                case "init" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "send" -> send(producer, List.of(
                    new ProducerRecord<>(topic, Integer.parseInt(words[1]), null, words[2])));
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                default -> throw new IllegalArgumentException(words[0]);
            }
            return "done";
        } catch (ProducerFencedException error) {
            return "fenced " + error;
        } catch (OutOfOrderSequenceException | AuthorizationException error) {
            return "failed " + error;
        } catch (KafkaException error) {
            return "abortable " + error;
        } catch (Exception error) {
            return "failed " + error;
        }
    }

    /** Returns when all records are acknowledged. */
    private static void send(KafkaProducer<String, String> producer, List<ProducerRecord<String, String>> records)
            throws InterruptedException {
        List<Future<?>> sent = new ArrayList<>();
        records.forEach(record -> sent.add(producer.send(record)));
        for (Future<?> one : sent) {
            try {
                one.get();
            } catch (ExecutionException error) {
                throw (KafkaException) error.getCause();
            }
        }
    }

    private static void copy(String bootstrap, String input, String output, String group, String transactionalId)
            throws Exception {
        AtomicBoolean ended = Main.standardInputEnds();
        Map<String, String> settings = new HashMap<>(Map.of(
            "group.id", group,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "isolation.level", "read_committed",
            "max.poll.records", "20",
            "session.timeout.ms", "2000",
            "heartbeat.interval.ms", "500"));
        try (KafkaProducer<String, String> producer = producer(bootstrap, transactionalId);
                KafkaConsumer<String, String> consumer = Main.consumer(bootstrap, settings)) {
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            while (!ended.get()) {
                ConsumerRecords<String, String> polled = consumer.poll(POLL);
                if (polled.isEmpty()) {
                    continue;
                }
                List<ProducerRecord<String, String>> copies = new ArrayList<>();
                for (ConsumerRecord<String, String> one : polled) {
                    copies.add(new ProducerRecord<>(output, one.partition(), null, "copied-" + one.value()));
                }
                producer.beginTransaction();
                send(producer, copies);
                System.out.println("sent");
                producer.sendOffsetsToTransaction(polled.nextOffsets(), consumer.groupMetadata());
                System.out.println("offsets");
                producer.commitTransaction();
                System.out.println("committed");
            }
        }
    }

    private static void committed(String bootstrap, String topic) {
        AtomicBoolean ended = Main.standardInputEnds();
        try (KafkaConsumer<String, String> consumer =
                Main.consumer(bootstrap, Map.of("isolation.level", "read_committed"))) {
            List<TopicPartition> partitions =
                IntStream.range(0, PARTITIONS).mapToObj(one -> new TopicPartition(topic, one)).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (!ended.get()) {
                consumer.poll(POLL).forEach(record -> System.out.println(record.value()));
            }
        }
    }
}
