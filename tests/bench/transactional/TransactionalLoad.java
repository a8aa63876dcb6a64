import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes transactions as fast as the client's defaults allow:
 * `TransactionalLoad BOOTSTRAP TOPIC PARTITIONS VALUE_BYTES RECORDS SECONDS COMMIT_RECORDS COMMIT_MS`.
 *
 * It ends after RECORDS, or after the transaction in which SECONDS have passed. A transaction is committed after
 * COMMIT_RECORDS, or when it is COMMIT_MS old. Prints `sent` and how many records were written; `steady`, how many of
 * them were written after the first third of the commits, and in how many seconds; then for each commit after that third
 * `commit` and its milliseconds: of `commitTransaction` alone, once all records are acknowledged.
 */
public final class TransactionalLoad {
    private static final int PAYLOADS = 1000;
    private static final int PARTITION_RUN = 64;

    private record Commit(long records, long endNanos, long nanos) {
    }

    public static void main(String[] arguments) {
        int partitions = Integer.parseInt(arguments[2]);
        byte[][] values = new byte[PAYLOADS][Integer.parseInt(arguments[3])];
        Random random = new Random(7);
        for (byte[] value : values) {
            random.nextBytes(value);
        }
        long records = Long.parseLong(arguments[4]);
        long nanos = TimeUnit.SECONDS.toNanos(Long.parseLong(arguments[5]));
        long commitRecords = Long.parseLong(arguments[6]);
        long commitNanos = TimeUnit.MILLISECONDS.toNanos(Long.parseLong(arguments[7]));
        List<Commit> commits = new ArrayList<>();
        long sent = 0;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties(arguments[0]))) {
            producer.initTransactions();
            long deadline = System.nanoTime() + nanos;
            while (sent < records && System.nanoTime() < deadline) {
                producer.beginTransaction();
                long goal = Math.min(records, sent + commitRecords);
                long end = System.nanoTime() + commitNanos;
                while (sent < goal && System.nanoTime() < end) {
                    int partition = (int) (sent / PARTITION_RUN % partitions);
                    producer.send(new ProducerRecord<>(arguments[1], partition, null, values[(int) (sent % PAYLOADS)]));
                    sent++;
                }
                producer.flush();
                long start = System.nanoTime();
                producer.commitTransaction();
                commits.add(new Commit(sent, System.nanoTime(), System.nanoTime() - start));
            }
        }
        print(sent, commits);
    }

    private static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        properties.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, "load-" + UUID.randomUUID());
        properties.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        properties.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        return properties;
    }

    private static void print(long sent, List<Commit> commits) {
        Commit first = commits.get(commits.size() / 3);
        Commit last = commits.get(commits.size() - 1);
        System.out.println("sent " + sent);
        System.out.println("steady " + (last.records - first.records) + " " + (last.endNanos - first.endNanos) / 1e9);
        for (Commit commit : commits.subList(commits.size() / 3, commits.size())) {
            System.out.println("commit " + commit.nanos / 1e6);
        }
    }
}
