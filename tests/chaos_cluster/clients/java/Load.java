// Apache Kafka's Java producer that runs through faults: the protocol of tests/crash/load.py.
//
//     java Load BOOTSTRAP SEED SECONDS
//
// It prints `a NUMBER PARTITION OFFSET` for an acknowledgement and `f NUMBER PARTITION REASON` for a
// record that it abandoned, and ends when its input ends, after requests in flight are settled.

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Load {
    static final String TOPIC = "ledger";
    static final String NAME = "java";
    static final int PARTITIONS = 4;
    static final int IN_FLIGHT_MAX = 60;
    static final int BURST = 8;
    static final long PAUSE_MS = 30;
    static final int GIVE_UP_MS = 90_000;

    static byte[] value(long number, int partition) {
        int size = (int) (number * 7919 % 300) + (number % 64 == 63 ? 20_000 : 0);
        byte[] head = (NAME + ":" + number + ":" + partition + ":").getBytes(StandardCharsets.US_ASCII);
        return Arrays.copyOf(head, head.length + size);
    }

    static synchronized void print(String line) {
        System.out.println(line);
    }

    public static void main(String[] words) throws Exception {
        int requestMs = Integer.parseInt(words[2]) * 1000;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("enable.idempotence", "true");
        settings.put("acks", "all");
        settings.put("linger.ms", "2");
        settings.put("delivery.timeout.ms", Integer.toString(GIVE_UP_MS));
        settings.put("max.block.ms", Integer.toString(GIVE_UP_MS));
        settings.put("request.timeout.ms", Integer.toString(requestMs));
        settings.put("retry.backoff.ms", "50");
        settings.put("retry.backoff.max.ms", "100");
        settings.put("reconnect.backoff.ms", "50");
        settings.put("reconnect.backoff.max.ms", "100");
        settings.put("socket.connection.setup.timeout.ms", "2000");
        AtomicBoolean isOver = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException error) {
                System.err.println(error);
            }
            isOver.set(true);
        });
        input.setDaemon(true);
        input.start();
        Random dice = new Random(Long.parseLong(words[1]));
        Semaphore inFlight = new Semaphore(IN_FLIGHT_MAX);
        ByteArraySerializer serializer = new ByteArraySerializer();
        int partition = 0;
        long number = 0;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, serializer, serializer)) {
            while (!isOver.get()) {
                for (int count = 0; count < BURST && inFlight.tryAcquire(); count++) {
                    if (dice.nextDouble() < 0.2) {
                        partition = dice.nextInt(PARTITIONS);
                    }
                    send(producer, inFlight, number++, partition);
                }
                Thread.sleep(PAUSE_MS);
            }
            producer.flush();
        }
    }

    static void send(KafkaProducer<byte[], byte[]> producer, Semaphore inFlight, long number, int partition) {
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(TOPIC, partition, null, value(number, partition));
        producer.send(record, (placed, error) -> {
            inFlight.release();
            if (error == null) {
                print("a " + number + " " + partition + " " + placed.offset());
            } else {
                print("f " + number + " " + partition + " " + error.toString().replace('\n', ' '));
            }
        });
    }
}
