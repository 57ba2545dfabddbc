package org.apache.kafka.common.test.junit;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * Deletes what the previous test left on brokers that serve several tests.
 *
 * <p>Topics are deleted for certain. Groups, group settings and ACLs are deleted if the broker allows it:
 * a member that has not left keeps its group. Internal topics and transactions stay.
 */
final class ClusterReset {
    private static final long TOPICS_MILLIS_MAX = 20_000;
    private static final int GROUP_ATTEMPTS_MAX = 20;
    private static final long GROUP_ATTEMPT_MILLIS = 200;

    private static boolean isWarm;

    private final Admin admin;

    ClusterReset(Admin admin) {
        this.admin = admin;
    }

    void run() throws InterruptedException {
        createInternalTopics();
        deleteTopics();
        for (int attempt = 0; attempt < GROUP_ATTEMPTS_MAX && !deleteGroups(); attempt++) {
            Thread.sleep(GROUP_ATTEMPT_MILLIS);
        }
        Waiting.attempt(this::deleteGroupSettings);
        Waiting.attempt(() -> Waiting.get(admin.deleteAcls(List.of(AclBindingFilter.ANY)).all()));
    }

    /** Before the first test: so that no test pays for the first coordinators. */
    private void createInternalTopics() {
        if (!isWarm) {
            isWarm = true;
            Waiting.attempt(() -> Waiting.get(admin.listConsumerGroupOffsets("warm").all()));
            Waiting.attempt(() -> Waiting.get(admin.fenceProducers(List.of("warm")).all()));
        }
    }

    private void deleteTopics() throws InterruptedException {
        Set<String> topics = ownTopics();
        if (!topics.isEmpty()) {
            Waiting.attempt(() -> Waiting.get(admin.deleteTopics(topics).all()));
            Waiting.until(() -> ownTopics().isEmpty(), TOPICS_MILLIS_MAX, "topics deleted");
        }
    }

    private Set<String> ownTopics() {
        return Waiting.get(admin.listTopics(new ListTopicsOptions().listInternal(false)).names()).stream()
            .filter(topic -> !topic.startsWith("__")).collect(Collectors.toSet());
    }

    /** Delete all groups; return whether there were none. */
    private boolean deleteGroups() {
        List<String> shareGroups = new ArrayList<>();
        List<String> otherGroups = new ArrayList<>();
        for (GroupListing group : Waiting.get(admin.listGroups().all())) {
            boolean isShare = group.type().orElse(GroupType.CLASSIC) == GroupType.SHARE;
            (isShare ? shareGroups : otherGroups).add(group.groupId());
        }
        if (!otherGroups.isEmpty()) {
            Waiting.attempt(() -> Waiting.get(admin.deleteConsumerGroups(otherGroups).all()));
        }
        if (!shareGroups.isEmpty()) {
            Waiting.attempt(() -> Waiting.get(admin.deleteShareGroups(shareGroups).all()));
        }
        return shareGroups.isEmpty() && otherGroups.isEmpty();
    }

    private void deleteGroupSettings() {
        Collection<ConfigResource> groups = Waiting.get(
            admin.listConfigResources(Set.of(ConfigResource.Type.GROUP), new ListConfigResourcesOptions()).all());
        Map<ConfigResource, Collection<AlterConfigOp>> changes = new HashMap<>();
        Waiting.get(admin.describeConfigs(groups).all()).forEach((group, settings) -> {
            List<AlterConfigOp> deletions = settings.entries().stream()
                .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG)
                .map(entry -> new AlterConfigOp(new ConfigEntry(entry.name(), ""), AlterConfigOp.OpType.DELETE))
                .toList();
            if (!deletions.isEmpty()) {
                changes.put(group, deletions);
            }
        });
        if (!changes.isEmpty()) {
            Waiting.get(admin.incrementalAlterConfigs(changes).all());
        }
    }
}
