import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;

import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * Settings of topics and brokers: describe, append, reject an invalid value; client metrics.
 *
 * <p>It does NOT check that a setting takes effect: Penstock's own tests do.
 */
final class SettingChecks {
    private final Checks checks;
    private final RunContext run;
    private final Admin admin;

    SettingChecks(Checks checks, RunContext run, Admin admin) {
        this.checks = checks;
        this.run = run;
        this.admin = admin;
    }

    void describeAndAlter() {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, run.topic);
        checks.checkResult("describeConfigs topic", () ->
            admin.describeConfigs(List.of(topic)).all().get().get(topic).get("retention.ms").value());
        checks.check("incrementalAlterConfigs", () ->
            setCleanupPolicy(topic, "compact", AlterConfigOp.OpType.APPEND));
        checks.checkError("incrementalAlterConfigs bad", InvalidConfigurationException.class,
            () -> setCleanupPolicy(topic, "bogus", AlterConfigOp.OpType.SET));
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(RunContext.BROKER_ID));
        checks.checkResult("describeConfigs broker", () ->
            admin.describeConfigs(List.of(broker)).all().get().get(broker).entries().size() + " entries");
        checks.checkResult("listConfigResources", () -> admin.listConfigResources().all().get().size());
        checks.checkResult("listClientMetricsResources", () ->
            admin.listClientMetricsResources().all().get().size());
        checks.checkResult("clientInstanceId", this::clientInstanceId);
    }

    private void setCleanupPolicy(ConfigResource topic, String value, AlterConfigOp.OpType operation) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry("cleanup.policy", value), operation);
        admin.incrementalAlterConfigs(Map.of(topic, List.of(change))).all().get();
    }

    /** A broker without client metrics makes the client throw this error; it is a correct answer. */
    private Object clientInstanceId() {
        try {
            return admin.clientInstanceId(Duration.ofSeconds(5));
        } catch (IllegalStateException error) {
            return error.getMessage();
        }
    }
}
