import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.errors.GroupIdNotFoundException;

import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Consumer groups as an Admin client sees them: list, describe, change offsets, delete.
 *
 * <p>The groups are those of ConsumerChecks. Streams groups are checked only where none exists.
 */
final class GroupChecks {
    private final Checks checks;
    private final RunContext run;
    private final Admin admin;

    GroupChecks(Checks checks, RunContext run, Admin admin) {
        this.checks = checks;
        this.run = run;
        this.admin = admin;
    }

    void describeAndDelete() {
        checkConsumerGroups();
        checkStreamsGroups();
    }

    private void checkConsumerGroups() {
        String classic = run.groupOf("classic");
        String consumer = run.groupOf("consumer");
        checks.checkResult("listGroups", () -> admin.listGroups().all().get().size());
        checks.checkResult("listConsumerGroups", () -> admin.listConsumerGroups().all().get().size());
        checks.checkResult("describeConsumerGroups", () ->
            admin.describeConsumerGroups(List.of(classic, consumer)).all().get().values().stream()
                .map(group -> group.type() + ":" + group.groupState()).toList());
        checks.checkResult("describeClassicGroups", () ->
            admin.describeClassicGroups(List.of(classic)).all().get().size());
        checks.checkResult("listConsumerGroupOffsets", () ->
            admin.listConsumerGroupOffsets(consumer).partitionsToOffsetAndMetadata().get().size());
        checks.check("alterConsumerGroupOffsets", () ->
            admin.alterConsumerGroupOffsets(classic, Map.of(run.partition, new OffsetAndMetadata(5))).all().get());
        checks.check("deleteConsumerGroupOffsets", () ->
            admin.deleteConsumerGroupOffsets(classic, Set.of(run.partition)).all().get());
        checks.check("removeMembersFromConsumerGroup", () -> {
            List<MemberToRemove> members = List.of(new MemberToRemove(run.staticMember));
            RemoveMembersFromConsumerGroupOptions options = new RemoveMembersFromConsumerGroupOptions(members);
            admin.removeMembersFromConsumerGroup(run.staticGroup, options).all().get();
        });
        checks.check("deleteConsumerGroups", () ->
            admin.deleteConsumerGroups(List.of(classic, consumer)).all().get());
    }

    private void checkStreamsGroups() {
        String missing = "nope" + run.id;
        checks.checkError("describeStreamsGroups none", GroupIdNotFoundException.class,
            () -> admin.describeStreamsGroups(List.of(missing)).all().get());
        checks.checkResult("listStreamsGroupOffsets", () ->
            admin.listStreamsGroupOffsets(Map.of(missing, new ListStreamsGroupOffsetsSpec())).all().get());
        checks.checkError("deleteStreamsGroups none", GroupIdNotFoundException.class,
            () -> admin.deleteStreamsGroups(List.of(missing)).all().get());
    }
}
