import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.TopicExistsException;

import java.util.List;
import java.util.Map;
import java.util.StringJoiner;

/**
 * Topics: create, list, describe, add partitions, list offsets, delete.
 *
 * <p>It does NOT check settings of topics: see SettingChecks.
 */
final class TopicChecks {
    private static final short DEFAULT_REPLICATION = -1;
    private static final short ONE_REPLICA = 1;

    private final Checks checks;
    private final RunContext run;
    private final Admin admin;
    private Uuid topicId;

    TopicChecks(Checks checks, RunContext run, Admin admin) {
        this.checks = checks;
        this.run = run;
        this.admin = admin;
    }

    void create() throws Exception {
        NewTopic first = new NewTopic(run.topic, RunContext.PARTITIONS, DEFAULT_REPLICATION)
            .configs(Map.of("retention.ms", "600000"));
        NewTopic second = new NewTopic(run.secondTopic, 2, ONE_REPLICA);
        checks.check("createTopics", () -> admin.createTopics(List.of(first, second)).all().get());
        NewTopic duplicate = new NewTopic(run.topic, RunContext.PARTITIONS, ONE_REPLICA);
        checks.checkError("createTopics dup", TopicExistsException.class,
            () -> admin.createTopics(List.of(duplicate)).all().get());
        checks.check("listTopics", () ->
            Checks.assertEqual(true, admin.listTopics().names().get().contains(run.topic)));
        checks.checkResult("describeTopics", () -> describe().partitions().size());
        topicId = describe().topicId();
        checks.checkResult("describeTopics by id", () ->
            admin.describeTopics(TopicCollection.ofTopicIds(List.of(topicId))).allTopicIds().get().get(topicId).name());
        checks.check("createPartitions", () ->
            admin.createPartitions(Map.of(run.secondTopic, NewPartitions.increaseTo(4))).all().get());
    }

    void listOffsets() {
        List<OffsetSpec> specs = List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(),
            OffsetSpec.forTimestamp(0), OffsetSpec.earliestLocal());
        checks.checkResult("listOffsets earliest/latest/max/ts", () -> {
            StringJoiner offsets = new StringJoiner("/");
            for (OffsetSpec spec : specs) {
                long offset = admin.listOffsets(Map.of(run.partition, spec)).all().get().get(run.partition).offset();
                offsets.add(String.valueOf(offset));
            }
            return offsets;
        });
    }

    void delete() {
        checks.check("deleteTopics", () ->
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(topicId))).all().get());
        checks.check("deleteTopics by name", () ->
            admin.deleteTopics(List.of(run.secondTopic, run.transactionTopic)).all().get());
    }

    private TopicDescription describe() throws Exception {
        return admin.describeTopics(List.of(run.topic)).allTopicNames().get().get(run.topic);
    }
}
