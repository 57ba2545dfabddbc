import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Share groups: consume with both modes of acknowledgement, describe, change offsets, delete.
 *
 * <p>In explicit mode each hundredth record is released once, so it must be delivered again.
 */
final class ShareGroupChecks {
    private static final Duration POLL = Duration.ofMillis(300);
    private static final int RELEASED_EVERY = 100;

    private final Checks checks;
    private final RunContext run;
    private final Admin admin;

    ShareGroupChecks(Checks checks, RunContext run, Admin admin) {
        this.checks = checks;
        this.run = run;
        this.admin = admin;
    }

    void consumeAndDescribe() {
        checks.checkResult("share consumer implicit", () -> consume("implicit") + " released+redelivered");
        checks.checkResult("share consumer explicit", () -> consume("explicit") + " released+redelivered");
        String group = run.shareGroupOf("implicit");
        checks.checkResult("describeShareGroups", () ->
            admin.describeShareGroups(List.of(group)).all().get().values().iterator().next().groupState());
        ListShareGroupOffsetsSpec offsets = new ListShareGroupOffsetsSpec().topicPartitions(List.of(run.partition));
        checks.checkResult("listShareGroupOffsets", () ->
            admin.listShareGroupOffsets(Map.of(group, offsets)).partitionsToOffsetInfo(group).get());
        checks.check("alterShareGroupOffsets", () ->
            admin.alterShareGroupOffsets(group, Map.of(run.partition, 0L)).all().get());
        checks.check("deleteShareGroupOffsets", () ->
            admin.deleteShareGroupOffsets(group, Set.of(run.topic)).all().get());
        checks.check("deleteShareGroups", () -> admin.deleteShareGroups(List.of(group)).all().get());
    }

    /** Consume the whole topic; return the number of records released. */
    private int consume(String mode) throws Exception {
        String group = run.shareGroupOf(mode);
        startAtFirstRecord(group);
        boolean isExplicit = mode.equals("explicit");
        Set<String> accepted = new HashSet<>();
        int released = 0;
        try (KafkaShareConsumer<String, String> consumer = run.shareConsumer(group, mode)) {
            consumer.subscribe(List.of(run.topic));
            long end = System.currentTimeMillis() + RunContext.CONSUME_MILLIS_MAX;
            while (accepted.size() < RunContext.RECORDS && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    boolean isReleased = isExplicit && mustRelease(record);
                    if (isExplicit) {
                        consumer.acknowledge(record, isReleased ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    }
                    if (isReleased) {
                        released++;
                    } else {
                        accepted.add(record.partition() + "-" + record.offset());
                    }
                }
                consumer.commitSync();
            }
        }
        Checks.assertEqual(RunContext.RECORDS, accepted.size());
        return released;
    }

    private static boolean mustRelease(ConsumerRecord<String, String> record) {
        boolean isFirstDelivery = record.deliveryCount().orElse((short) 1) == 1;
        return isFirstDelivery && record.offset() % RELEASED_EVERY == 0;
    }

    private void startAtFirstRecord(String group) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        ConfigEntry entry = new ConfigEntry("share.auto.offset.reset", "earliest");
        AlterConfigOp change = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }
}
