import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions with the Java client, which speaks transaction version 2. Arguments: bootstrap, source
 * topic, target topic, group protocol. Prints one line with > for each thing found out; the test compares.
 */
public class Transactions {
    private static final long MILLISECONDS_MAX = 30_000;
    private static String bootstrap;

    private static KafkaProducer<String, String> producer(String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transactionalId);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String group, String protocol) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "7");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void fill(KafkaProducer<String, String> producer, String topic) throws Exception {
        for (int number = 0; number < 8; number++) {
            producer.beginTransaction();
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int record = 0; record < 5; record++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, number + "-" + record)));
            }
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
            if (number % 3 == 2) {
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
            }
        }
    }

    private static Map<TopicPartition, OffsetAndMetadata> positions(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        for (TopicPartition partition : consumer.assignment()) {
            found.put(partition, new OffsetAndMetadata(consumer.position(partition)));
        }
        return found;
    }

    private static int copy(
            KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer, String target, int count) {
        int done = 0;
        int transactions = 0;
        long deadline = System.currentTimeMillis() + MILLISECONDS_MAX;
        while (done < count && System.currentTimeMillis() < deadline) {
            List<String> values = new ArrayList<>();
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                values.add(record.value());
            }
            if (values.isEmpty()) {
                continue;
            }
            transactions++;
            producer.beginTransaction();
            for (String value : values) {
                producer.send(new ProducerRecord<>(target, 0, null, value));
            }
            producer.sendOffsetsToTransaction(positions(consumer), consumer.groupMetadata());
            if (transactions % 3 == 0) {
                producer.abortTransaction();
                consumer.committed(consumer.assignment()).forEach((partition, offset) ->
                    consumer.seek(partition, offset == null ? 0 : offset.offset()));
            } else {
                producer.commitTransaction();
                done += values.size();
            }
        }
        return done;
    }

    private static void fence(Admin admin, String name, String target) throws Exception {
        KafkaProducer<String, String> zombie = producer(name);
        zombie.initTransactions();
        KafkaProducer<String, String> heir = producer(name);
        heir.initTransactions();
        try {
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(target, 0, null, "zombie"));
            zombie.commitTransaction();
            System.out.println("> the zombie won");
        } catch (Exception error) {
            System.out.println("> zombie: " + error.getClass().getSimpleName());
        }
        heir.beginTransaction();
        heir.send(new ProducerRecord<>(target, 0, null, "heir")).get();
        System.out.println("> described: " + admin.describeTransactions(List.of(name)).description(name).get().state());
        System.out.println("> listed: " + admin.listTransactions(new ListTransactionsOptions()
            .filterStates(List.of(TransactionState.ONGOING)).filterOnTransactionalIdPattern(name)).all().get().size());
        admin.fenceProducers(List.of(name)).all().get();
        try {
            heir.commitTransaction();
            System.out.println("> the heir won");
        } catch (Exception error) {
            System.out.println("> fenced: " + error.getClass().getSimpleName());
        }
        zombie.close(Duration.ZERO);
        heir.close(Duration.ZERO);
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        String source = arguments[1];
        String target = arguments[2];
        String protocol = arguments[3];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", (Object) bootstrap));
                KafkaProducer<String, String> producer = producer("java-" + source);
                KafkaConsumer<String, String> consumer = consumer("java-" + source, protocol)) {
            producer.initTransactions();
            fill(producer, source);
            consumer.subscribe(List.of(source));
            System.out.println("> copied: " + copy(consumer, producer, target, 30));
            fence(admin, "java-fence-" + source, target);
        }
        System.out.println("> done");
    }
}
