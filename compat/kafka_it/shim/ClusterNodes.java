package org.apache.kafka.common.test.junit;

import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.server.common.MetadataVersion;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/**
 * The processes of one cluster in launch mode: ports, folders, settings, start and stop.
 *
 * <p>Constructing it starts nothing. {@link #remove} kills the processes and deletes the folder. It does
 * NOT wait until brokers are registered: ExternalCluster does, through a client.
 */
final class ClusterNodes {
    final Map<Integer, ExternalProcess> brokers = new TreeMap<>();
    final int adminPort = ExternalProcess.freePort();
    private final Path folder;
    private ExternalProcess controller;

    ClusterNodes(ClusterConfig config) throws IOException {
        folder = Files.createTempDirectory("kafka-it-");
        int count = Math.min(config.numBrokers(), ShimOptions.BROKERS_MAX);
        boolean isSeparate = ShimOptions.HAS_SEPARATE_CONTROLLER && count > 1;
        int controllerPort = ExternalProcess.freePort();
        Map<Integer, Integer> ports = new TreeMap<>();
        for (int id = 0; id < count; id++) {
            ports.put(id, ExternalProcess.freePort());
        }
        Map<String, String> environment = environment(config, ports);
        int controllerId = isSeparate ? ShimOptions.CONTROLLER_ID : 0;
        environment.put("EXTERNAL_CONTROLLER", controllerId + "@" + ExternalProcess.HOST + ":" + controllerPort);
        for (Map.Entry<Integer, Integer> each : ports.entrySet()) {
            int id = each.getKey();
            Map<String, String> own = new HashMap<>(environment);
            own.put("EXTERNAL_ADMIN_PORT", String.valueOf(id == 0 ? adminPort : ExternalProcess.freePort()));
            String roles = id == controllerId ? "broker,controller" : "broker";
            brokers.put(id, new ExternalProcess(
                id, each.getValue(), roles, folder.resolve("data-" + id), settings(config, id), own));
        }
        if (isSeparate) {
            controller = new ExternalProcess(controllerId, controllerPort, "controller",
                folder.resolve("data-controller"), settings(config, controllerId), environment);
        }
    }

    /** The test's settings for one node. */
    static Map<String, String> settings(ClusterConfig config, int id) {
        Map<String, String> all = new HashMap<>(config.serverProperties());
        all.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
        return all;
    }

    ExternalProcess broker(int id) {
        ExternalProcess found = brokers.get(id);
        if (found == null) {
            throw new UnsupportedOperationException("broker " + id + " was not started by this shim");
        }
        return found;
    }

    boolean areAllAlive() {
        return brokers.values().stream().allMatch(ExternalProcess::isAlive);
    }

    void start() throws IOException, InterruptedException {
        if (controller != null) {
            controller.start();
        }
        for (ExternalProcess broker : brokers.values()) {
            broker.start();
        }
        for (ExternalProcess broker : brokers.values()) {
            broker.awaitPort();
        }
    }

    void stop() throws InterruptedException {
        for (ExternalProcess broker : brokers.values()) {
            broker.stop();
        }
        if (controller != null) {
            controller.kill();
        }
    }

    void remove() throws IOException, InterruptedException {
        for (ExternalProcess broker : brokers.values()) {
            broker.kill();
        }
        if (controller != null) {
            controller.kill();
        }
        ExternalProcess.deleteFolder(folder);
    }

    private static Map<String, String> environment(ClusterConfig config, Map<Integer, Integer> ports) {
        Map<String, String> all = new HashMap<>();
        all.put("EXTERNAL_BROKERS", ports.entrySet().stream()
            .map(each -> each.getKey() + "@" + ExternalProcess.HOST + ":" + each.getValue())
            .collect(Collectors.joining(",")));
        all.put("EXTERNAL_SECURITY", config.brokerSecurityProtocol().name);
        all.put("EXTERNAL_LISTENER", config.brokerListenerName().value());
        all.put("EXTERNAL_FEATURES", features(config));
        return all;
    }

    private static String features(ClusterConfig config) {
        Map<String, Short> levels = new TreeMap<>();
        config.features().forEach((feature, level) -> levels.put(feature.featureName(), level));
        if (config.metadataVersion() != MetadataVersion.latestTesting()) {
            levels.put(MetadataVersion.FEATURE_NAME, config.metadataVersion().featureLevel());
        }
        return levels.entrySet().stream()
            .map(each -> each.getKey() + "=" + each.getValue()).collect(Collectors.joining(","));
    }
}
