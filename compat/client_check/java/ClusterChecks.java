import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * The cluster: nodes, features, log directories, leaders, reassignments, deletion of records.
 *
 * <p>One broker serves it, so elections and reassignments change nothing here.
 */
final class ClusterChecks {
    private final Checks checks;
    private final RunContext run;
    private final Admin admin;

    ClusterChecks(Checks checks, RunContext run, Admin admin) {
        this.checks = checks;
        this.run = run;
        this.admin = admin;
    }

    void describe() {
        checks.checkResult("describeCluster", () -> admin.describeCluster().nodes().get());
        checks.checkResult("describeFeatures", () ->
            admin.describeFeatures().featureMetadata().get().finalizedFeatures());
        checks.checkResult("describeMetadataQuorum", () ->
            admin.describeMetadataQuorum().quorumInfo().get().leaderId());
    }

    void administer() {
        checkLogDirectories();
        checkPartitions();
        checkMembership();
        checks.checkResult("metrics", () -> admin.metrics().size());
    }

    private void checkLogDirectories() {
        int broker = RunContext.BROKER_ID;
        TopicPartitionReplica replica = new TopicPartitionReplica(run.topic, 0, broker);
        checks.checkResult("describeLogDirs", () -> admin.describeLogDirs(List.of(broker)).allDescriptions().get()
            .get(broker).values().iterator().next().replicaInfos().size());
        checks.checkResult("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(replica)).all().get()
            .values().iterator().next().getCurrentReplicaLogDir());
        checks.checkError("alterReplicaLogDirs bad", ApiException.class,
            () -> admin.alterReplicaLogDirs(Map.of(replica, "/nope")).all().get());
    }

    private void checkPartitions() {
        checks.checkResult("electLeaders preferred", () -> {
            Optional<Throwable> error = admin.electLeaders(ElectionType.PREFERRED, Set.of(run.partition))
                .partitions().get().get(run.partition);
            return error.map(each -> each.getClass().getSimpleName()).orElse("ok");
        });
        checks.checkResult("listPartitionReassignments", () ->
            admin.listPartitionReassignments().reassignments().get().size());
        NewPartitionReassignment unchanged = new NewPartitionReassignment(List.of(RunContext.BROKER_ID));
        checks.check("alterPartitionReassignments noop", () ->
            admin.alterPartitionReassignments(Map.of(run.partition, Optional.of(unchanged))).all().get());
        TopicPartition second = new TopicPartition(run.secondTopic, 0);
        checks.check("deleteRecords", () ->
            admin.deleteRecords(Map.of(second, RecordsToDelete.beforeOffset(1))).all().get());
    }

    private void checkMembership() {
        FeatureUpdate upgrade = new FeatureUpdate((short) 2, FeatureUpdate.UpgradeType.UPGRADE);
        checks.check("updateFeatures validate", () -> admin.updateFeatures(
            Map.of("transaction.version", upgrade), new UpdateFeaturesOptions().validateOnly(true)).all().get());
        checks.checkError("unregisterBroker bad", ApiException.class,
            () -> admin.unregisterBroker(99).all().get());
        RaftVoterEndpoint endpoint = new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1);
        checks.checkError("addRaftVoter bad", ApiException.class,
            () -> admin.addRaftVoter(9, Uuid.randomUuid(), Set.of(endpoint)).all().get());
    }
}
