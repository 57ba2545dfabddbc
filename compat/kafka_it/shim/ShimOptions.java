package org.apache.kafka.common.test.junit;

import java.io.File;

/**
 * Options of the shim, from system properties.
 *
 * <ul>
 *   <li>{@code external.launch}: the script that starts one broker; set, it selects launch mode.
 *   <li>{@code external.bootstrap}: addresses of the brokers in shared mode.
 *   <li>{@code external.controller=true}: one more process with the role controller for tests with
 *       several brokers, as in Kafka's own test kit, so that brokers can stop without the quorum.
 *   <li>{@code external.reuse=true}: keep the brokers for the next test if it has the same settings
 *       and no broker was stopped; their content is deleted as in shared mode.
 *   <li>{@code external.brokers.max=N}: skip tests that need more than N brokers.
 *   <li>{@code external.shrink=true}: run those tests with N brokers and cut replication factors to N.
 *   <li>{@code external.log}: the file that receives the output of the brokers.
 * </ul>
 */
final class ShimOptions {
    static final String LAUNCH_SCRIPT = System.getProperty("external.launch");
    static final boolean IS_LAUNCH = LAUNCH_SCRIPT != null;
    static final String SHARED_BOOTSTRAP = System.getProperty("external.bootstrap", "127.0.0.1:9092");
    static final boolean HAS_SEPARATE_CONTROLLER = Boolean.getBoolean("external.controller");
    static final boolean IS_REUSING = Boolean.getBoolean("external.reuse");
    static final boolean IS_SHRINKING = Boolean.getBoolean("external.shrink");
    static final int BROKERS_MAX = Integer.getInteger("external.brokers.max", 9);
    static final File LOG = new File(System.getProperty("external.log", "it-broker.log"));

    /** The node id of a separate controller, as in Kafka's own test kit. */
    static final int CONTROLLER_ID = 3000;

    private ShimOptions() {
    }
}
