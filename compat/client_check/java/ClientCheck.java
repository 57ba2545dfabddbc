import org.apache.kafka.clients.admin.Admin;

/**
 * Calls every API of Kafka's Java client against one broker, one check after another.
 *
 * <p>Run as {@code ClientCheck host:port}. Each check prints one line, {@code PASS name ms detail} or
 * {@code FAIL name ms error}. The exit status is 0 if all checks passed and 1 otherwise.
 *
 * <p>The order matters: later checks use the topics, groups and transactions of earlier ones. Names
 * carry a run id, so a broker can serve several runs. Each area is a class: topics, producers,
 * consumers, transactions, share groups, groups, settings, security and the cluster.
 *
 * <p>It is NOT a load test, and it does not check the broker's answers in depth: the tests of Kafka
 * and librdkafka in this folder's neighbours do. It expects one broker with node id 1.
 */
public final class ClientCheck {
    private ClientCheck() {
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 1) {
            System.err.println("usage: ClientCheck host:port");
            System.exit(2);
        }
        Checks checks = new Checks();
        RunContext run = new RunContext(arguments[0]);
        try (Admin admin = run.admin()) {
            runAll(checks, run, admin);
        }
        checks.printTotal();
        System.exit(checks.failed() == 0 ? 0 : 1);
    }

    private static void runAll(Checks checks, RunContext run, Admin admin) throws Exception {
        TopicChecks topics = new TopicChecks(checks, run, admin);
        ClusterChecks cluster = new ClusterChecks(checks, run, admin);
        cluster.describe();
        topics.create();
        new ProducerChecks(checks, run).produce();
        topics.listOffsets();
        new ConsumerChecks(checks, run).consume();
        new TransactionChecks(checks, run, admin).commitAndFence();
        new ShareGroupChecks(checks, run, admin).consumeAndDescribe();
        new GroupChecks(checks, run, admin).describeAndDelete();
        new SettingChecks(checks, run, admin).describeAndAlter();
        new SecurityChecks(checks, run, admin).changeAccess();
        cluster.administer();
        topics.delete();
    }
}
