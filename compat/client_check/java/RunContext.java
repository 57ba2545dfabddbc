import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The broker of this run, the names that belong to it, and clients for it.
 *
 * <p>{@link #topic} has three partitions; the producer checks write {@link #RECORDS} records to it.
 * {@link #secondTopic} receives everything else. All names end with the same run id.
 */
final class RunContext {
    static final int BROKER_ID = 1;
    static final int PARTITIONS = 3;
    static final List<String> COMPRESSIONS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final int RECORDS_OF_COMPRESSION = 500;
    static final int RECORDS = COMPRESSIONS.size() * RECORDS_OF_COMPRESSION;
    static final Duration POLL = Duration.ofMillis(200);
    static final long CONSUME_MILLIS_MAX = 40_000;

    final String id = Long.toString(System.nanoTime(), 36);
    final String topic = "j-" + id;
    final String secondTopic = "j2-" + id;
    final String transactionTopic = "jt-" + id;
    final String transactionalId = "tx" + id;
    final String staticGroup = "st" + id;
    final String staticMember = "i1";
    final TopicPartition partition = new TopicPartition(topic, 0);
    private final String bootstrapServers;

    RunContext(String bootstrapServers) {
        this.bootstrapServers = bootstrapServers;
    }

    /** The group that read {@link #topic} with this protocol: classic or consumer. */
    String groupOf(String protocol) {
        return "g-" + protocol + id;
    }

    String shareGroupOf(String mode) {
        return "sh-" + mode + id;
    }

    Admin admin() {
        return Admin.create(settings(Map.of("request.timeout.ms", 10_000, "default.api.timeout.ms", 15_000)));
    }

    KafkaProducer<String, String> producer(Map<String, Object> settings) {
        return new KafkaProducer<>(settings(settings), new StringSerializer(), new StringSerializer());
    }

    KafkaConsumer<String, String> consumer(String group, Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("group.id", group);
        return new KafkaConsumer<>(settings(all), new StringDeserializer(), new StringDeserializer());
    }

    /** A consumer that starts a new group at the first record. */
    KafkaConsumer<String, String> consumerFromStart(String group, Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("auto.offset.reset", "earliest");
        return consumer(group, all);
    }

    KafkaShareConsumer<String, String> shareConsumer(String group, String mode) {
        Map<String, Object> all = settings(Map.of("group.id", group, "share.acknowledgement.mode", mode));
        return new KafkaShareConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    /** Poll until all records of {@link #topic} were returned, and fail if they were not. */
    static void consumeAll(KafkaConsumer<String, String> consumer) {
        int count = 0;
        long end = System.currentTimeMillis() + CONSUME_MILLIS_MAX;
        while (count < RECORDS && System.currentTimeMillis() < end) {
            count += consumer.poll(POLL).count();
        }
        Checks.assertEqual(RECORDS, count);
    }

    private Map<String, Object> settings(Map<String, Object> own) {
        Map<String, Object> all = new HashMap<>(own);
        all.put("bootstrap.servers", bootstrapServers);
        return all;
    }
}
