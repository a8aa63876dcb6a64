package kraft.interop;

import java.io.OutputStream;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words exactly once until standard input ends: `WordCount BOOTSTRAP INPUT OUTPUT APPLICATION STATE_FOLDER`.
 *
 * OUTPUT gets a record for each word of INPUT: the word and how often it has occurred so far. Prints the state of the
 * application at each change.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // a record for each word
        properties.put(StreamsConfig.mainConsumerPrefix("session.timeout.ms"), 3000);
        properties.put(StreamsConfig.mainConsumerPrefix("heartbeat.interval.ms"), 500);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setUncaughtExceptionHandler(error -> {
            System.err.println(error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((state, before) -> System.out.println(state));
        streams.start();
        System.in.transferTo(OutputStream.nullOutputStream());
        streams.close();
    }
}
