// Apache Kafka's Java producer with its default settings: acks=all, idempotent, 16-KiB batches, linger 5 ms.
//
//     java IdempotentProducer BOOTSTRAP TOPIC VALUE_BYTES RECORDS
//
// Sends equal records without a key to all partitions of the topic and prints one JSON object. The clock starts
// after a quarter of RECORDS more were sent and acknowledged, because Java compiles meanwhile. Any failed delivery
// ends it with an error. It measures the client as much as the broker: the client needs most of a core.

import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class IdempotentProducer {
    private static final AtomicReference<Exception> FAILURE = new AtomicReference<>();

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, byte[] value, int records) {
        for (int i = 0; i < records; i++) {
            producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                if (error != null) {
                    FAILURE.compareAndSet(null, error);
                }
            });
        }
        producer.flush();
        if (FAILURE.get() != null) {
            throw new IllegalStateException("a delivery failed", FAILURE.get());
        }
    }

    private static double cpuSeconds() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    public static void main(String[] arguments) {
        String topic = arguments[1];
        byte[] value = new byte[Integer.parseInt(arguments[2])];
        int records = Integer.parseInt(arguments[3]);
        int before = records / 4;
        new Random(1).nextBytes(value);
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            send(producer, topic, value, before);
            long begun = System.nanoTime();
            send(producer, topic, value, records);
            double seconds = (System.nanoTime() - begun) / 1e9;
            System.out.printf(
                Locale.ROOT,
                "{\"seconds\": %f, \"records\": %d, \"bytes\": %d, \"client_cpu_seconds\": %f}%n",
                seconds, records + before, (long) records * value.length, cpuSeconds());
        }
    }
}
