package org.apache.kafka.common.test.junit;

import java.io.File;
import java.io.FileWriter;
import java.io.IOException;
import java.io.Writer;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * One external node, a broker, a controller or both, that the launch script turns into.
 *
 * <p>The shim runs <pre>SCRIPT properties-file port node-id data-folder</pre> and the script must
 * become (exec) a node that serves on 127.0.0.1:port, keeps its data in the folder (empty at first,
 * kept over a restart inside a test), and shuts down cleanly on SIGTERM. The environment has the rest:
 * <ul>
 *   <li>EXTERNAL_BROKERS: every broker as {@code id@host:port}, separated by commas;
 *   <li>EXTERNAL_CONTROLLER: {@code id@host:port} of the controller, for brokers that have one;
 *   <li>EXTERNAL_ROLES: {@code broker,controller}, {@code broker} or {@code controller};
 *   <li>EXTERNAL_SECURITY and EXTERNAL_LISTENER: protocol and name of the client listener.
 *       SASL_PLAINTEXT means mechanism PLAIN with the users of Kafka's JaasUtils: plain-admin, a super
 *       user, and plain-user1; a password is the name and "-secret";
 *   <li>EXTERNAL_ADMIN_PORT: a second listener whose clients are super users. The script must serve it
 *       if the properties have an authorizer and the client listener is PLAINTEXT;
 *   <li>EXTERNAL_FEATURES: {@code name=level,...}, only those that the test names.
 * </ul>
 */
final class ExternalProcess {
    static final String HOST = "127.0.0.1";
    private static final long STOP_SECONDS_MAX = 60;
    private static final int PORT_MIN = 20_000;
    private static final int PORT_COUNT = 12_000;

    final int id;
    final int port;
    private final String roles;
    private final Path data;
    private final File properties;
    private final Map<String, String> environment;
    private Process process;

    ExternalProcess(int id, int port, String roles, Path data, Map<String, String> settings,
            Map<String, String> environment) throws IOException {
        this.id = id;
        this.port = port;
        this.roles = roles;
        this.data = data;
        this.environment = environment;
        this.properties = data.resolveSibling("server-" + id + ".properties").toFile();
        Properties all = new Properties();
        all.putAll(settings);
        try (Writer writer = new FileWriter(properties)) {
            all.store(writer, null);
        }
    }

    /** A port that is free now, below the range from which the system takes ports of clients. */
    static int freePort() {
        Random random = new Random();
        while (true) {
            int port = PORT_MIN + random.nextInt(PORT_COUNT);
            try (ServerSocket socket = new ServerSocket()) {
                socket.bind(new InetSocketAddress(HOST, port));
                return port;
            } catch (IOException error) {
                // In use: try another.
            }
        }
    }

    /** Delete a folder with its files, when the processes that use it have ended. */
    static void deleteFolder(Path folder) throws IOException {
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    String address() {
        return HOST + ":" + port;
    }

    boolean isAlive() {
        return process != null && process.isAlive();
    }

    void start() throws IOException {
        ProcessBuilder builder = new ProcessBuilder(ShimOptions.LAUNCH_SCRIPT, properties.getPath(),
            String.valueOf(port), String.valueOf(id), data.toString());
        builder.environment().putAll(environment);
        builder.environment().put("EXTERNAL_ROLES", roles);
        // A test process that is stopped from outside must not leave brokers running.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> process.destroyForcibly()));
        process = builder.redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(ShimOptions.LOG)).start();
    }

    void awaitPort() throws InterruptedException {
        Waiting.until(this::isServing, Waiting.CLUSTER_CHANGE_MILLIS_MAX, "node " + id + " serves on port " + port);
    }

    private boolean isServing() {
        if (!process.isAlive()) {
            throw new IllegalStateException("node " + id + " ended with " + process.exitValue());
        }
        try (Socket socket = new Socket(HOST, port)) {
            return socket.isConnected();
        } catch (IOException error) {
            return false;
        }
    }

    /** Shut the node down cleanly, as KafkaBroker.shutdown does. */
    void stop() throws InterruptedException {
        if (process != null) {
            process.destroy();
            if (!process.waitFor(STOP_SECONDS_MAX, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
        }
    }

    void kill() throws InterruptedException {
        if (process != null) {
            process.destroyForcibly().waitFor();
        }
    }
}
