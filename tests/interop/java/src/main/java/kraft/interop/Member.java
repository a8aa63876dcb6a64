package kraft.interop;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;

/** A member of a group that works until it is asked to end, then commits and leaves. */
final class Member {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Map<String, Class<?>> ASSIGNORS = Map.of(
        "range", RangeAssignor.class,
        "roundrobin", RoundRobinAssignor.class,
        "sticky", StickyAssignor.class,
        "cooperative-sticky", CooperativeStickyAssignor.class);

    private static final String OF_THE_BROKER = "broker:";

    /**
     * `rest` is the group, the assignor, the session in ms and perhaps the instance id. An assignor `broker:NAME` is one
     * of the broker's: the member then uses the consumer group protocol, in which the broker also sets the session. A
     * topic `^…` is a regular expression.
     */
    static void work(String bootstrap, String topic, List<String> rest, AtomicBoolean ended) {
        Map<String, String> settings = new HashMap<>(Map.of(
            "group.id", rest.get(0),
            "auto.offset.reset", "earliest",
            "auto.commit.interval.ms", "200"));
        String assignor = rest.get(1);
        if (assignor.startsWith(OF_THE_BROKER)) {
            settings.put("group.protocol", "consumer");
            settings.put("group.remote.assignor", assignor.substring(OF_THE_BROKER.length()));
        } else {
            settings.put("partition.assignment.strategy", ASSIGNORS.get(assignor).getName());
            settings.put("session.timeout.ms", rest.get(2));
            settings.put("heartbeat.interval.ms", "500");
        }
        if (rest.size() == 4) {
            settings.put("group.instance.id", rest.get(3));
        }
        try (KafkaConsumer<String, String> consumer = Main.consumer(bootstrap, settings)) {
            if (topic.startsWith("^")) {
                consumer.subscribe(new SubscriptionPattern(topic));
            } else {
                consumer.subscribe(List.of(topic));
            }
            Set<TopicPartition> told = Set.of();
            while (!ended.get()) {
                consumer.poll(POLL).forEach(record -> System.out.println("read " + record.value()));
                Set<TopicPartition> owned = Set.copyOf(consumer.assignment());
                if (!owned.equals(told)) {
                    System.out.println(owned.stream().map(one -> " " + one.partition())
                        .collect(Collectors.joining("", "owned", "")));
                    told = owned;
                }
            }
        }
    }
}
