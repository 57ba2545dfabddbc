package org.apache.kafka.common.test.junit;

import org.apache.kafka.common.test.api.ClusterConfig;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

import java.util.List;
import java.util.function.Supplier;

/**
 * Shadows Kafka's class of the same name and points each {@code @ClusterTest} at external brokers.
 *
 * <p>Kafka's class starts a cluster inside the test process. This one must come first on the class
 * path. It has two modes.
 *
 * <p><b>Shared mode</b> ({@code -Dexternal.bootstrap=host:port[,host:port...]}): the brokers run
 * already. Topics, groups, group settings and ACLs are deleted before each test.
 *
 * <p><b>Launch mode</b> ({@code -Dexternal.launch=SCRIPT}): each test gets fresh brokers with its own
 * settings; see {@link ExternalProcess} for what the script must do. More options: see
 * {@link ShimOptions}.
 *
 * <p>Tests that look into a broker get stand-ins ({@link ServerStandIns}), which answer from what an
 * Admin client sees and throw UnsupportedOperationException for everything else. Such a failure is a
 * limit of this shim, NOT of the broker.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private static final long CONDITION_MILLIS_MAX = 15_000;

    private final String name;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean isCombined) {
        this.name = name;
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public String getDisplayName(int invocation) {
        return name + " [" + invocation + "]";
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        ExternalCluster cluster = new ExternalCluster(config, isCombined);
        return List.of(
            (BeforeEachCallback) context -> cluster.prepare(),
            (AfterEachCallback) context -> cluster.release(),
            new ClusterInstanceParameterResolver(cluster));
    }

    /** Kafka's ClusterTestExtensions calls it. */
    static void waitForCondition(Supplier<Boolean> condition, String description) throws InterruptedException {
        Waiting.until(condition, CONDITION_MILLIS_MAX, description);
    }
}
