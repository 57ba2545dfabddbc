package org.apache.kafka.common.test.junit;

import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.ReplicaManager;

import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.io.File;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * Stand-ins for the parts of Kafka's servers that tests look into.
 *
 * <p>They answer from a {@link BrokerView}: metadata, log directories, high watermarks, ACLs. A
 * method that a client cannot answer is left out, so calling it fails the test.
 */
final class ServerStandIns {
    private final BrokerView view;

    ServerStandIns(BrokerView view) {
        this.view = view;
    }

    /** Methods that a stand-in for a broker has in both kinds of tests. */
    Map<String, Function<Object[], Object>> brokerMethods(int broker, Function<Object[], Object> boundPort) {
        Map<String, Function<Object[], Object>> methods = new HashMap<>();
        methods.put("boundPort", boundPort);
        methods.put("socketServer", none -> StandIn.of(SocketServer.class, Map.of("boundPort", boundPort)));
        methods.put("metadataCache", none -> metadataCache());
        methods.put("groupCoordinator", none -> StandIn.of(GroupCoordinator.class, Map.of(
            "groupMetadataTopicConfigs", ignored -> offsetsTopicSettings())));
        methods.put("logManager", none -> StandIn.of(LogManager.class, Map.of(
            "getLog", arguments -> replica(broker, (TopicPartition) arguments[0]),
            "getLog$default$2", ignored -> false,
            "liveLogDirs", ignored -> logFolders(broker))));
        methods.put("replicaManager", none -> StandIn.of(ReplicaManager.class, Map.of(
            "localLog", arguments -> replica(broker, (TopicPartition) arguments[0]),
            "onlinePartition", arguments -> onlinePartition(broker, (TopicPartition) arguments[0]))));
        return methods;
    }

    /** Methods that a stand-in for a controller has in both kinds of tests. */
    Map<String, Function<Object[], Object>> controllerMethods() {
        Map<String, Function<Object[], Object>> methods = new HashMap<>();
        methods.put("controller", none -> StandIn.of(Controller.class, Map.of(
            "isActive", ignored -> true,
            "findAllTopicIds", ignored -> CompletableFuture.completedFuture(view.topicIds()))));
        methods.put("authorizerPlugin", none -> authorizerPlugin());
        methods.put("raftManager", none -> StandIn.of(KafkaRaftManager.class, Map.of(
            "raftLog", ignored -> StandIn.of(RaftLog.class, Map.of(
                "endOffset", unused -> new LogOffsetMetadata(0))))));
        return methods;
    }

    /** A loader that has always caught up: the waits of the shim ask the brokers themselves. */
    static MetadataLoader metadataLoader() {
        return StandIn.of(MetadataLoader.class, Map.of("lastAppliedOffset", none -> Long.MAX_VALUE));
    }

    scala.Option<Plugin<Authorizer>> authorizerPlugin() {
        return scala.Option.apply(Plugin.wrapInstance(authorizer(), null, "authorizer.class.name"));
    }

    /** Creates, deletes and lists ACLs over the wire; it makes no decision about access. */
    Authorizer authorizer() {
        Map<String, Function<Object[], Object>> methods = new HashMap<>();
        methods.put("acls", arguments -> view.acls((AclBindingFilter) arguments[0]));
        methods.put("createAcls", arguments -> {
            @SuppressWarnings("unchecked")
            List<AclBinding> bindings = (List<AclBinding>) arguments[1];
            view.createAcls(bindings);
            return bindings.stream()
                .map(binding -> CompletableFuture.completedFuture(AclCreateResult.SUCCESS)).toList();
        });
        methods.put("deleteAcls", arguments -> {
            @SuppressWarnings("unchecked")
            List<AclBindingFilter> filters = (List<AclBindingFilter>) arguments[1];
            return filters.stream().map(filter -> deleted(view.deleteAcls(filter))).toList();
        });
        return StandIn.of(Authorizer.class, methods);
    }

    private static CompletableFuture<AclDeleteResult> deleted(Collection<AclBinding> bindings) {
        return CompletableFuture.completedFuture(new AclDeleteResult(
            bindings.stream().map(AclDeleteResult.AclBindingDeleteResult::new).toList()));
    }

    private scala.Option<UnifiedLog> replica(int broker, TopicPartition partition) {
        if (!view.hasReplica(broker, partition)) {
            return scala.Option.empty();
        }
        return scala.Option.apply(StandIn.of(UnifiedLog.class, Map.of(
            "highWatermark", none -> view.highWatermark(partition))));
    }

    private scala.collection.Seq<File> logFolders(int broker) {
        List<File> folders = view.logDirectories(broker).keySet().stream().map(File::new).toList();
        return scala.jdk.javaapi.CollectionConverters.asScala(folders).toSeq();
    }

    private scala.Option<Partition> onlinePartition(int broker, TopicPartition partition) {
        Optional<TopicPartitionInfo> info = view.partition(partition.topic(), partition.partition());
        boolean isHere = info.isPresent()
            && info.get().replicas().stream().anyMatch(node -> node.id() == broker);
        if (!isHere) {
            return scala.Option.empty();
        }
        Node leader = info.get().leader();
        boolean isLeader = leader != null && leader.id() == broker;
        return scala.Option.apply(StandIn.of(Partition.class, Map.of(
            "isLeader", none -> isLeader,
            "leaderIdIfLocal", none -> isLeader ? scala.Option.apply((Object) broker) : scala.Option.empty())));
    }

    private KRaftMetadataCache metadataCache() {
        Map<String, Function<Object[], Object>> methods = new HashMap<>();
        methods.put("getAliveBrokerNodes", arguments -> view.aliveNodes());
        methods.put("hasAliveBroker", arguments -> view.isAlive((int) arguments[0]));
        methods.put("getAllTopics", arguments -> view.topicIds().keySet());
        methods.put("topicNamesToIds", arguments -> view.topicIds());
        methods.put("getTopicId", arguments -> view.topicIds().getOrDefault((String) arguments[0], Uuid.ZERO_UUID));
        methods.put("numPartitions", arguments ->
            view.topic((String) arguments[0]).map(topic -> topic.partitions().size()));
        methods.put("contains", arguments -> arguments[0] instanceof TopicPartition partition
            ? view.partition(partition.topic(), partition.partition()).isPresent()
            : view.topic((String) arguments[0]).isPresent());
        methods.put("getLeaderAndIsr", arguments ->
            view.partition((String) arguments[0], (int) arguments[1]).map(ServerStandIns::leaderAndIsr));
        methods.put("getPartitionLeaderEndpoint", arguments ->
            view.partition((String) arguments[0], (int) arguments[1]).map(TopicPartitionInfo::leader));
        return StandIn.of(KRaftMetadataCache.class, methods);
    }

    private static LeaderAndIsr leaderAndIsr(TopicPartitionInfo partition) {
        boolean hasLeader = partition.leader() != null && !partition.leader().isEmpty();
        return new LeaderAndIsr(
            hasLeader ? partition.leader().id() : LeaderAndIsr.NO_LEADER,
            partition.isr().stream().map(Node::id).toList());
    }

    private static Properties offsetsTopicSettings() {
        Properties settings = new Properties();
        settings.put("cleanup.policy", "compact");
        settings.put("compression.type", "producer");
        settings.put("segment.bytes", "104857600");
        return settings;
    }
}
