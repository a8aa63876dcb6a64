package kraft.interop;

import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.util.ConnectorUtils;

/**
 * Writes sequences of numbers: sequence S goes to partition S of a topic, as S-0, S-1, … up to `limit` (exclusive).
 *
 * The sequences are divided between the tasks. The next number of each sequence is the stored offset, so that a task
 * continues where the last committed transaction of any task ended.
 */
public final class SequenceSource extends SourceConnector {
    static final String TOPIC = "topic";
    static final String SEQUENCES = "sequences";
    static final String LIMIT = "limit";
    static final ConfigDef CONFIG = new ConfigDef()
        .define(TOPIC, Type.STRING, Importance.HIGH, "Topic with at least one partition for each sequence.")
        .define(SEQUENCES, Type.INT, Importance.HIGH, "Number of sequences.")
        .define(LIMIT, Type.LONG, Long.MAX_VALUE, Importance.HIGH, "First number that is not written.");

    private Map<String, String> properties;

    @Override
    public void start(Map<String, String> given) {
        properties = given;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return SequenceTask.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int tasksMax) {
        List<String> sequences = IntStream.range(0, Integer.parseInt(properties.get(SEQUENCES)))
            .mapToObj(Integer::toString)
            .toList();
        return ConnectorUtils.groupPartitions(sequences, Math.min(tasksMax, sequences.size())).stream()
            .map(own -> Map.of(
                TOPIC, properties.get(TOPIC),
                SEQUENCES, String.join(",", own),
                LIMIT, properties.getOrDefault(LIMIT, Long.toString(Long.MAX_VALUE))
            ))
            .toList();
    }

    @Override
    public void stop() {
    }

    @Override
    public ConfigDef config() {
        return CONFIG;
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> given) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public boolean alterOffsets(Map<String, String> given, Map<Map<String, ?>, Map<String, ?>> offsets) {
        return true;
    }

    @Override
    public String version() {
        return "1";
    }
}
