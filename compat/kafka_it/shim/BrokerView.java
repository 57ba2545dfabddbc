package org.apache.kafka.common.test.junit;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/**
 * What an Admin client with all rights sees of the brokers.
 *
 * <p>Each call opens a client of its own: tests stop and start brokers between calls. It caches nothing
 * and knows nothing of Kafka's server classes: ServerStandIns turns its answers into those.
 */
final class BrokerView {
    private final Supplier<Admin> clients;

    BrokerView(Supplier<Admin> clients) {
        this.clients = clients;
    }

    private <T> T ask(Function<Admin, T> question) {
        try (Admin client = clients.get()) {
            return question.apply(client);
        }
    }

    List<Node> aliveNodes() {
        return ask(client -> List.copyOf(Waiting.get(client.describeCluster().nodes())));
    }

    boolean isAlive(int broker) {
        return aliveNodes().stream().anyMatch(node -> node.id() == broker);
    }

    void awaitAlive(Set<Integer> brokers) throws InterruptedException {
        Waiting.until(() -> aliveNodes().stream().map(Node::id).collect(Collectors.toSet()).containsAll(brokers),
            Waiting.CLUSTER_CHANGE_MILLIS_MAX, "brokers " + brokers + " registered");
    }

    String clusterId() {
        return ask(client -> Waiting.get(client.describeCluster().clusterId()));
    }

    /** Log directories of a broker, with the replicas in each. */
    Map<String, LogDirDescription> logDirectories(int broker) {
        return ask(client -> Waiting.get(client.describeLogDirs(List.of(broker)).descriptions().get(broker)));
    }

    boolean hasReplica(int broker, TopicPartition partition) {
        return logDirectories(broker).values().stream()
            .anyMatch(directory -> directory.replicaInfos().containsKey(partition));
    }

    long highWatermark(TopicPartition partition) {
        return ask(client -> Waiting.get(
            client.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition)).offset());
    }

    Optional<TopicDescription> topic(String topic) {
        try {
            return ask(client ->
                Optional.of(Waiting.get(client.describeTopics(List.of(topic)).allTopicNames()).get(topic)));
        } catch (IllegalStateException error) {
            return Optional.empty();
        }
    }

    Optional<TopicPartitionInfo> partition(String topic, int partition) {
        return topic(topic).flatMap(found ->
            found.partitions().stream().filter(each -> each.partition() == partition).findFirst());
    }

    /** Whether a client sees the topic without asking for internal ones, as Kafka's tests wait for it. */
    boolean isListed(String topic) {
        return ask(client -> Waiting.get(client.listTopics().names()).contains(topic));
    }

    Map<String, Uuid> topicIds() {
        return ask(client -> Waiting.get(client.listTopics(new ListTopicsOptions().listInternal(true)).listings())
            .stream().collect(Collectors.toMap(TopicListing::name, TopicListing::topicId)));
    }

    Collection<AclBinding> acls(AclBindingFilter filter) {
        return ask(client -> Waiting.get(client.describeAcls(filter).values()));
    }

    void createAcls(Collection<AclBinding> bindings) {
        ask(client -> Waiting.get(client.createAcls(bindings).all()));
    }

    Collection<AclBinding> deleteAcls(AclBindingFilter filter) {
        return ask(client -> Waiting.get(client.deleteAcls(List.of(filter)).all()));
    }
}
