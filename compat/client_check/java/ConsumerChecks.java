import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;

import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * Consumers: both group protocols, rebalances, static members, regular expressions, offset lookups.
 *
 * <p>It leaves the groups behind: GroupChecks describes and deletes them.
 */
final class ConsumerChecks {
    private static final Duration REBALANCE_POLL = Duration.ofMillis(100);

    private final Checks checks;
    private final RunContext run;

    ConsumerChecks(Checks checks, RunContext run) {
        this.checks = checks;
        this.run = run;
    }

    void consume() {
        for (String protocol : List.of("classic", "consumer")) {
            checks.checkResult("consumer group.protocol=" + protocol, () -> consumeAndCommit(protocol));
            checks.checkResult("two members rebalance " + protocol, () -> rebalance(protocol));
        }
        checks.check("static member classic", this::consumeAsStaticMember);
        checks.check("regex subscribe RE2J (consumer)", this::consumeByPattern);
        checks.checkResult("offsetsForTimes/beginning/end", () -> {
            try (KafkaConsumer<String, String> consumer = run.consumer("x" + run.id, Map.of())) {
                return consumer.offsetsForTimes(Map.of(run.partition, 1L))
                    + " " + consumer.beginningOffsets(List.of(run.partition))
                    + " " + consumer.endOffsets(List.of(run.partition));
            }
        });
    }

    private String consumeAndCommit(String protocol) {
        Map<String, Object> settings = Map.of("group.protocol", protocol, "enable.auto.commit", false);
        try (KafkaConsumer<String, String> consumer = run.consumerFromStart(run.groupOf(protocol), settings)) {
            consumer.subscribe(List.of(run.topic));
            RunContext.consumeAll(consumer);
            consumer.commitSync();
            return consumer.assignment().size() + " partitions";
        }
    }

    /** Poll two members until each has a part of the topic and none of it is missing. */
    private String rebalance(String protocol) {
        String group = "r-" + protocol + run.id;
        Map<String, Object> settings = Map.of("group.protocol", protocol);
        try (KafkaConsumer<String, String> first = run.consumerFromStart(group, settings);
                KafkaConsumer<String, String> second = run.consumerFromStart(group, settings)) {
            first.subscribe(List.of(run.topic));
            second.subscribe(List.of(run.topic));
            long end = System.currentTimeMillis() + RunContext.CONSUME_MILLIS_MAX;
            while (System.currentTimeMillis() < end) {
                first.poll(REBALANCE_POLL);
                second.poll(REBALANCE_POLL);
                int ofFirst = first.assignment().size();
                int ofSecond = second.assignment().size();
                if (ofFirst > 0 && ofSecond > 0 && ofFirst + ofSecond == RunContext.PARTITIONS) {
                    return ofFirst + "+" + ofSecond;
                }
            }
            throw new AssertionError("partitions not shared: " + first.assignment() + " " + second.assignment());
        }
    }

    private void consumeAsStaticMember() {
        Map<String, Object> settings = Map.of("group.instance.id", run.staticMember);
        try (KafkaConsumer<String, String> consumer = run.consumerFromStart(run.staticGroup, settings)) {
            consumer.subscribe(List.of(run.topic));
            RunContext.consumeAll(consumer);
        }
    }

    private void consumeByPattern() {
        Map<String, Object> settings = Map.of("group.protocol", "consumer");
        try (KafkaConsumer<String, String> consumer = run.consumerFromStart("re" + run.id, settings)) {
            consumer.subscribe(new SubscriptionPattern(run.topic));
            RunContext.consumeAll(consumer);
        }
    }
}
