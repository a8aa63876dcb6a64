package kraft.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** Writes its sequences of a {@link SequenceSource}, some numbers of each at every poll. */
public final class SequenceTask extends SourceTask {
    private static final int NUMBERS_PER_POLL = 5;
    /** Slows the sequences down, so that workers and brokers are killed in the middle of them. */
    private static final long POLL_PAUSE_MS = 20;

    private final Map<Integer, Long> next = new TreeMap<>();
    private String topic;
    private long limit;

    @Override
    public void start(Map<String, String> properties) {
        topic = properties.get(SequenceSource.TOPIC);
        limit = Long.parseLong(properties.get(SequenceSource.LIMIT));
        for (String sequence : properties.get(SequenceSource.SEQUENCES).split(",")) {
            Map<String, Object> stored = context.offsetStorageReader().offset(partition(sequence));
            next.put(Integer.valueOf(sequence), stored == null ? 0L : (Long) stored.get("next"));
        }
    }

    @Override
    public List<SourceRecord> poll() throws InterruptedException {
        Thread.sleep(POLL_PAUSE_MS);
        List<SourceRecord> records = new ArrayList<>();
        next.replaceAll((sequence, first) -> {
            long end = Math.min(limit, first + NUMBERS_PER_POLL);
            for (long number = first; number < end; number++) {
                records.add(record(sequence, number));
            }
            return Math.max(first, end);
        });
        return records.isEmpty() ? null : records;
    }

    private SourceRecord record(int sequence, long number) {
        Map<String, Object> offset = Map.of("next", number + 1);
        Map<String, String> source = partition(Integer.toString(sequence));
        return new SourceRecord(source, offset, topic, sequence, Schema.STRING_SCHEMA, sequence + "-" + number);
    }

    private static Map<String, String> partition(String sequence) {
        return Map.of("sequence", sequence);
    }

    @Override
    public void stop() {
    }

    @Override
    public String version() {
        return "1";
    }
}
