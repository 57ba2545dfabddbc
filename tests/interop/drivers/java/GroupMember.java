// One member of a group by the Java client, as a process; see group_member.py for what it says.
//
//     java GroupMember PROTOCOL BOOTSTRAP GROUP TOPIC SESSION_MS HEARTBEAT_MS

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashSet;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class GroupMember {
    private static volatile boolean stopping = false;
    private static volatile boolean rewinding = false;

    public static void main(String[] arguments) {
        String topic = arguments[3];
        Thread listener = new Thread(GroupMember::listen);
        listener.setDaemon(true);
        listener.start();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings(arguments))) {
            consumer.subscribe(Set.of(topic));
            Set<TopicPartition> last = null;
            while (!stopping) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                Set<TopicPartition> now = consumer.assignment();
                if (!now.equals(last)) {
                    last = new HashSet<>(now);
                    say(now);
                }
                for (ConsumerRecord<String, String> record : records) {
                    String value = "{\"value\": \"" + record.value() + "\", ";
                    System.out.println(value + "\"partition\": " + record.partition() + "}");
                }
                if (!records.isEmpty()) {
                    commit(consumer);
                }
                if (rewinding) {
                    rewinding = false;
                    now.forEach(partition -> consumer.seek(partition, 0));
                }
            }
        }
        System.out.println("{\"left\": true}");
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put("group.protocol", arguments[0]);
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("group.id", arguments[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        if (arguments[0].equals("classic")) {
            // In the other protocol the broker says these.
            settings.put("session.timeout.ms", arguments[4]);
            settings.put("heartbeat.interval.ms", arguments[5]);
        }
        return settings;
    }

    private static void commit(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync();
        } catch (CommitFailedException | RebalanceInProgressException overtaken) {
            // Whoever has the partition next sees these records again.
        }
    }

    private static void say(Set<TopicPartition> assignment) {
        Set<Integer> numbers = new TreeSet<>();
        assignment.forEach(partition -> numbers.add(partition.partition()));
        System.out.println("{\"assigned\": " + numbers + "}");
    }

    private static void listen() {
        try (BufferedReader reader = new BufferedReader(new InputStreamReader(System.in))) {
            while (reader.readLine() != null) {
                rewinding = true;
            }
        } catch (java.io.IOException gone) {
            // As good as the end.
        }
        stopping = true;
    }
}
