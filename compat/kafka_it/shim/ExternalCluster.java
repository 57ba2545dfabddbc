package org.apache.kafka.common.test.junit;

import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.SharedServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.junit.jupiter.api.Assumptions;

import java.io.IOException;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * The cluster that a test of Kafka sees: external brokers, shared or launched for it.
 *
 * <p>A test that the brokers cannot serve (another security protocol, too many brokers) is skipped. In
 * shared mode brokers cannot be stopped: tests that do so fail with UnsupportedOperationException.
 */
final class ExternalCluster implements ClusterInstance {
    private static final long ACL_MILLIS_MAX = 15_000;

    /** With external.reuse: the cluster of the previous test, still running. */
    private static ExternalCluster kept;

    private final ClusterConfig config;
    private final boolean isCombined;
    private final BrokerView view = new BrokerView(this::superAdmin);
    private final ServerStandIns standIns = new ServerStandIns(view);
    private ClusterNodes nodes;
    private boolean isStarted;
    private boolean isStopped;
    private boolean wasBrokerStopped;

    ExternalCluster(ClusterConfig config, boolean isCombined) {
        this.config = config;
        this.isCombined = isCombined;
    }

    // ---- Start and stop

    void prepare() throws Exception {
        SecurityProtocol security = config.brokerSecurityProtocol();
        if (!ShimOptions.IS_LAUNCH) {
            Assumptions.assumeTrue(security == SecurityProtocol.PLAINTEXT, "needs " + security);
            isStarted = true;
            reset();
            return;
        }
        boolean isOffered = security == SecurityProtocol.PLAINTEXT || security == SecurityProtocol.SASL_PLAINTEXT;
        Assumptions.assumeTrue(isOffered, "needs " + security);
        boolean isFitting = config.numBrokers() <= ShimOptions.BROKERS_MAX || ShimOptions.IS_SHRINKING;
        Assumptions.assumeTrue(isFitting, "needs " + config.numBrokers() + " brokers");
        if (adoptKept()) {
            reset();
            return;
        }
        nodes = new ClusterNodes(config);
        if (config.isAutoStart()) {
            start();
        }
    }

    /** Take over the brokers of the previous test if they fit; otherwise remove them. */
    private boolean adoptKept() throws Exception {
        ExternalCluster previous = kept;
        kept = null;
        if (previous == null) {
            return false;
        }
        if (!config.isAutoStart() || !previous.hasSameSettings(config)) {
            previous.nodes.remove();
            return false;
        }
        nodes = previous.nodes;
        isStarted = true;
        return true;
    }

    private boolean hasSameSettings(ClusterConfig other) {
        return config.serverProperties().equals(other.serverProperties())
            && config.perServerOverrideProperties().equals(other.perServerOverrideProperties())
            && config.features().equals(other.features())
            && config.metadataVersion() == other.metadataVersion()
            && config.numBrokers() == other.numBrokers()
            && config.brokerSecurityProtocol() == other.brokerSecurityProtocol()
            && config.brokerListenerName().equals(other.brokerListenerName());
    }

    /** After the test: keep the brokers for the next one if possible; otherwise remove them. */
    void release() throws Exception {
        if (nodes == null) {
            return;
        }
        boolean isWhole = isStarted && !wasBrokerStopped && nodes.areAllAlive();
        if (ShimOptions.IS_REUSING && isWhole) {
            kept = this;
        } else {
            nodes.remove();
        }
    }

    private void reset() throws InterruptedException {
        try (Admin admin = superAdmin()) {
            new ClusterReset(admin).run();
        }
    }

    @Override
    public void start() {
        if (!ShimOptions.IS_LAUNCH || isStarted) {
            return;
        }
        isStarted = true;
        try {
            nodes.start();
            waitForReadyBrokers();
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public boolean started() {
        return isStarted;
    }

    @Override
    public void stop() {
        isStopped = true;
        wasBrokerStopped = true;
        try {
            if (nodes != null) {
                nodes.stop();
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public boolean stopped() {
        return isStopped;
    }

    private ExternalProcess process(int id) {
        if (nodes == null) {
            throw new UnsupportedOperationException("shared broker " + id + " cannot be stopped or started");
        }
        return nodes.broker(id);
    }

    @Override
    public void shutdownBroker(int id) {
        wasBrokerStopped = true;
        try {
            process(id).stop();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void startBroker(int id) {
        ExternalProcess process = process(id);
        try {
            process.start();
            process.awaitPort();
            view.awaitAlive(Set.of(id));
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void waitForReadyBrokers() throws InterruptedException {
        if (nodes != null) {
            view.awaitAlive(nodes.brokers.values().stream()
                .filter(ExternalProcess::isAlive).map(process -> process.id).collect(Collectors.toSet()));
        }
    }

    // ---- Addresses and facts

    /** A client with all rights, whatever ACLs the test creates. */
    private Admin superAdmin() {
        boolean hasAdminListener = nodes != null
            && config.serverProperties().containsKey("authorizer.class.name")
            && config.brokerSecurityProtocol() == SecurityProtocol.PLAINTEXT;
        if (!hasAdminListener) {
            return admin();
        }
        String address = ExternalProcess.HOST + ":" + nodes.adminPort;
        return Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, address));
    }

    @Override
    public Type type() {
        return isCombined ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String bootstrapServers() {
        if (nodes == null) {
            return ShimOptions.SHARED_BOOTSTRAP;
        }
        return nodes.brokers.values().stream().map(ExternalProcess::address).collect(Collectors.joining(","));
    }

    @Override
    public String bootstrapControllers() {
        throw new UnsupportedOperationException("external broker: bootstrapControllers");
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return Arrays.stream(bootstrapServers().split(","))
            .map(address -> Integer.valueOf(address.substring(address.lastIndexOf(':') + 1))).toList();
    }

    @Override
    public String clusterId() {
        return view.clusterId();
    }

    @Override
    public Set<Integer> brokerIds() {
        if (nodes != null) {
            return nodes.brokers.keySet();
        }
        return view.aliveNodes().stream().map(Node::id).collect(Collectors.toSet());
    }

    @Override
    public Set<Integer> controllerIds() {
        return controllers().keySet();
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    // ---- Stand-ins for servers

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        Map<Integer, KafkaBroker> result = new TreeMap<>();
        List<Integer> ports = brokerBoundPorts();
        int index = 0;
        for (int id : new TreeSet<>(brokerIds())) {
            result.put(id, broker(id, ports.get(Math.min(index, ports.size() - 1))));
            index++;
        }
        return result;
    }

    private KafkaBroker broker(int id, int port) {
        Map<String, Function<Object[], Object>> methods = standIns.brokerMethods(id, none -> port);
        methods.put("config", none -> kafkaConfig(id, port));
        methods.put("clusterId", none -> clusterId());
        methods.put("sharedServer", none -> StandIn.of(SharedServer.class, Map.of(
            "loader", ignored -> ServerStandIns.metadataLoader())));
        methods.put("brokerState", none -> brokerState(id));
        methods.put("isShutdown", none -> isShutDown(id));
        methods.put("shutdown", none -> {
            shutdownBroker(id);
            return null;
        });
        methods.put("startup", none -> {
            startBroker(id);
            return null;
        });
        methods.put("awaitShutdown", none -> {
            Waiting.attempt(() -> shutdownBroker(id));
            return null;
        });
        return StandIn.of(BrokerServer.class, methods);
    }

    private boolean isShutDown(int id) {
        return nodes != null && !nodes.broker(id).isAlive();
    }

    private BrokerState brokerState(int id) {
        if (isShutDown(id)) {
            return BrokerState.SHUTTING_DOWN;
        }
        return view.isAlive(id) ? BrokerState.RUNNING : BrokerState.STARTING;
    }

    private KafkaConfig kafkaConfig(int id, int port) {
        String listener = config.brokerListenerName().value();
        Properties all = new Properties();
        all.putAll(ClusterNodes.settings(config, id));
        all.put("node.id", String.valueOf(id));
        all.put("process.roles", "broker");
        all.put("controller.quorum.voters", ShimOptions.CONTROLLER_ID + "@" + ExternalProcess.HOST + ":1");
        all.put("controller.listener.names", "CONTROLLER");
        all.putIfAbsent("listeners", listener + "://" + ExternalProcess.HOST + ":" + port);
        all.putIfAbsent("inter.broker.listener.name", listener);
        all.putIfAbsent("listener.security.protocol.map",
            listener + ":" + config.brokerSecurityProtocol() + ",CONTROLLER:PLAINTEXT");
        all.putIfAbsent("log.dirs", "external");
        return KafkaConfig.fromProps(all);
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        ControllerServer controller = StandIn.of(ControllerServer.class, standIns.controllerMethods());
        return Map.of(ShimOptions.CONTROLLER_ID, controller);
    }

    @Override
    public List<Authorizer> authorizers() {
        return List.of(standIns.authorizer());
    }

    // ---- Waits, from what a client sees

    @Override
    public void createTopic(String topic, int partitions, short replicas, Map<String, String> settings)
            throws InterruptedException {
        boolean mayCut = ShimOptions.IS_SHRINKING || !ShimOptions.IS_LAUNCH;
        short fitting = (short) (mayCut ? Math.min(replicas, brokerIds().size()) : replicas);
        try (Admin admin = superAdmin()) {
            Waiting.get(admin.createTopics(
                List.of(new NewTopic(topic, partitions, fitting).configs(settings))).all());
        } catch (IllegalStateException error) {
            if (!String.valueOf(error.getCause()).contains("TopicExists")) {
                throw error;
            }
            if (topic.startsWith("__")) {
                return;
            }
        }
        waitTopicCreation(topic, partitions);
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        Waiting.until(() -> view.topic(topic).orElseThrow().partitions().stream()
            .filter(each -> each.leader() != null && !each.leader().isEmpty()).count() == partitions,
            Waiting.CLUSTER_CHANGE_MILLIS_MAX, topic + " created");
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        Waiting.until(() -> !view.isListed(topic),
            Waiting.CLUSTER_CHANGE_MILLIS_MAX, topic + " deleted");
    }

    @Override
    public void ensureConsistentMetadata() {
        // Nothing to do: the waits above ask the brokers themselves.
    }

    @Override
    public void ensureConsistentMetadata(
            Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {
        // Nothing to do, as above.
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries)
            throws InterruptedException {
        Set<AccessControlEntry> expected = new HashSet<>(entries);
        Waiting.until(() -> view.acls(filter).stream().map(AclBinding::entry).collect(Collectors.toSet())
            .equals(expected), ACL_MILLIS_MAX, "ACLs " + entries);
    }
}
