package org.apache.kafka.common.test.junit;

import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import kafka.server.QuorumTestHarness;
import kafka.server.SharedServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.metadata.BrokerState;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.mockito.MockedConstruction;
import org.mockito.Mockito;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * Launch mode for Kafka's older tests in Scala, which derive from QuorumTestHarness.
 *
 * <p>These tests construct their servers themselves. In such a test every {@code new BrokerServer} is a
 * stand-in whose startup runs the launch script (see {@link ExternalProcess}) with the broker's own
 * settings, with ports of listeners filled in. JUnit finds this class through
 * META-INF/services/org.junit.jupiter.api.extension.Extension. In shared mode it does nothing.
 *
 * <p>Several brokers need {@code -Dexternal.controller=true}. A listener named BROKER, if the settings
 * have one, is the one that this class itself connects to, so that ACLs do not reject it.
 */
public class ExternalHarness implements BeforeEachCallback, AfterEachCallback {
    private static final Set<String> FOLDER_SETTINGS = Set.of("log.dir", "log.dirs", "metadata.log.dir");

    private final List<MockedConstruction<?>> mocked = new ArrayList<>();
    private final Map<Object, KafkaConfig> configs = new IdentityHashMap<>();
    private final Map<Integer, Broker> brokers = new TreeMap<>();
    private final BrokerView view = new BrokerView(this::admin);
    private final ServerStandIns standIns = new ServerStandIns(view);
    private ExternalProcess controller;
    private int controllerPort;
    private Path folder;

    /** One external broker and the ports of its listeners. */
    private static final class Broker {
        private final KafkaConfig config;
        private final Map<String, Integer> ports = new TreeMap<>();
        private ExternalProcess process;

        Broker(KafkaConfig config) {
            this.config = config;
        }

        boolean isAlive() {
            return process != null && process.isAlive();
        }

        int firstPort() {
            return ports.values().iterator().next();
        }

        String adminAddress() {
            return ExternalProcess.HOST + ":" + ports.getOrDefault("BROKER", firstPort());
        }
    }

    @Override
    public void beforeEach(ExtensionContext context) throws Exception {
        boolean isOlderTest = QuorumTestHarness.class.isAssignableFrom(context.getRequiredTestClass());
        if (!ShimOptions.IS_LAUNCH || !isOlderTest) {
            return;
        }
        folder = Files.createTempDirectory("kafka-it-");
        controllerPort = ExternalProcess.freePort();
        mocked.add(Mockito.mockConstruction(SharedServer.class,
            created -> StandIn.settings(Map.of(
                "loader", none -> ServerStandIns.metadataLoader(),
                "stopForBroker", none -> null,
                "stopForController", none -> null)),
            (server, created) -> configs.put(server, (KafkaConfig) created.arguments().get(0))));
        mocked.add(Mockito.mockConstruction(ControllerServer.class,
            created -> StandIn.settings(controllerMethods(configs.get(created.arguments().get(0))))));
        mocked.add(Mockito.mockConstruction(BrokerServer.class,
            created -> StandIn.settings(brokerMethods(created.arguments().get(0)))));
    }

    @Override
    public void afterEach(ExtensionContext context) throws Exception {
        for (Broker broker : brokers.values()) {
            broker.process.kill();
        }
        if (controller != null) {
            controller.kill();
        }
        mocked.forEach(MockedConstruction::close);
        mocked.clear();
        brokers.clear();
        configs.clear();
        controller = null;
        if (folder != null) {
            ExternalProcess.deleteFolder(folder);
            folder = null;
        }
    }

    private Admin admin() {
        String servers = brokers.values().stream()
            .filter(Broker::isAlive).map(Broker::adminAddress).collect(Collectors.joining(","));
        return Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, servers));
    }

    private Map<String, Function<Object[], Object>> controllerMethods(KafkaConfig config) {
        Map<String, Function<Object[], Object>> methods = standIns.controllerMethods();
        methods.put("startup", none -> {
            if (ShimOptions.HAS_SEPARATE_CONTROLLER) {
                startController(config);
            }
            return null;
        });
        methods.put("shutdown", none -> null);
        methods.put("awaitShutdown", none -> null);
        methods.put("config", none -> config);
        methods.put("socketServerFirstBoundPortFuture", none -> CompletableFuture.completedFuture(controllerPort));
        methods.put("authorizerPlugin", none -> authorizerPlugin(config));
        return methods;
    }

    private Map<String, Function<Object[], Object>> brokerMethods(Object sharedServer) {
        Broker broker = new Broker(configs.get(sharedServer));
        Map<String, Function<Object[], Object>> methods = standIns.brokerMethods(
            broker.config.brokerId(), arguments -> broker.ports.get(((ListenerName) arguments[0]).value()));
        methods.put("startup", none -> {
            startBroker(broker);
            return null;
        });
        methods.put("shutdown", none -> stopBroker(broker));
        methods.put("awaitShutdown", none -> stopBroker(broker));
        methods.put("isShutdown", none -> !broker.isAlive());
        methods.put("brokerState", none -> broker.isAlive() ? BrokerState.RUNNING : BrokerState.SHUTTING_DOWN);
        methods.put("config", none -> broker.config);
        methods.put("sharedServer", none -> sharedServer);
        methods.put("authorizerPlugin", none -> authorizerPlugin(broker.config));
        return methods;
    }

    private scala.Option<?> authorizerPlugin(KafkaConfig config) {
        boolean isConfigured = config.originals().get("authorizer.class.name") != null;
        return isConfigured ? standIns.authorizerPlugin() : scala.Option.empty();
    }

    /** The environment of a script; without a separate controller the broker itself is one. */
    private Map<String, String> environment(int brokerId) {
        int id = ShimOptions.HAS_SEPARATE_CONTROLLER ? ShimOptions.CONTROLLER_ID : brokerId;
        return Map.of("EXTERNAL_CONTROLLER", id + "@" + ExternalProcess.HOST + ":" + controllerPort);
    }

    private static Map<String, String> settings(KafkaConfig config) {
        Map<String, String> all = new HashMap<>();
        config.originals().forEach((name, value) -> {
            if (value != null && !FOLDER_SETTINGS.contains(name)) {
                all.put(name, value instanceof Class<?> type ? type.getName() : String.valueOf(value));
            }
        });
        return all;
    }

    private void startController(KafkaConfig config) {
        int id = ShimOptions.CONTROLLER_ID;
        Map<String, String> settings = settings(config);
        settings.put("listeners", "CONTROLLER://" + ExternalProcess.HOST + ":" + controllerPort);
        try {
            controller = new ExternalProcess(id, controllerPort, "controller",
                folder.resolve("data-controller"), settings, environment(id));
            controller.start();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private void startBroker(Broker broker) {
        int id = broker.config.brokerId();
        try {
            if (broker.process == null) {
                broker.process = newProcess(broker);
                brokers.put(id, broker);
            }
            broker.process.start();
            broker.process.awaitPort();
            view.awaitAlive(Set.of(id));
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private ExternalProcess newProcess(Broker broker) throws IOException {
        Map<String, String> settings = settings(broker.config);
        List<String> listeners = new ArrayList<>();
        for (String listener : settings.getOrDefault("listeners", "PLAINTEXT://localhost:0").split(",")) {
            String name = listener.substring(0, listener.indexOf(':'));
            int port = ExternalProcess.freePort();
            broker.ports.put(name, port);
            listeners.add(name + "://" + ExternalProcess.HOST + ":" + port);
        }
        settings.put("listeners", String.join(",", listeners));
        settings.remove("advertised.listeners");
        int id = broker.config.brokerId();
        String roles = ShimOptions.HAS_SEPARATE_CONTROLLER ? "broker" : "broker,controller";
        return new ExternalProcess(
            id, broker.firstPort(), roles, folder.resolve("data-" + id), settings, environment(id));
    }

    private static Object stopBroker(Broker broker) {
        try {
            if (broker.process != null) {
                broker.process.stop();
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
        return null;
    }
}
