import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;

/**
 * Producers: idempotent with each compression, and without idempotence with acks 0 and 1.
 *
 * <p>It writes the records that the consumer checks read. It does NOT check transactions: see
 * TransactionChecks.
 */
final class ProducerChecks {
    private static final int VALUE_CHARACTERS = 200;

    private final Checks checks;
    private final RunContext run;

    ProducerChecks(Checks checks, RunContext run) {
        this.checks = checks;
        this.run = run;
    }

    void produce() {
        for (String compression : RunContext.COMPRESSIONS) {
            checks.check("producer idempotent " + compression, () -> produceIdempotent(compression));
        }
        checks.check("producer acks=0/1", () -> {
            produceWithAcks("0");
            produceWithAcks("1");
        });
    }

    private void produceIdempotent(String compression) throws Exception {
        Map<String, Object> settings = Map.of(
            "enable.idempotence", true, "acks", "all", "compression.type", compression, "linger.ms", 20);
        String value = "v".repeat(VALUE_CHARACTERS);
        try (KafkaProducer<String, String> producer = run.producer(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int index = 0; index < RunContext.RECORDS_OF_COMPRESSION; index++) {
                int partition = index % RunContext.PARTITIONS;
                sent.add(producer.send(new ProducerRecord<>(run.topic, partition, "k" + index, value)));
            }
            for (Future<RecordMetadata> future : sent) {
                future.get();
            }
        }
    }

    private void produceWithAcks(String acks) {
        try (KafkaProducer<String, String> producer = run.producer(Map.of("enable.idempotence", false, "acks", acks))) {
            for (int index = 0; index < 100; index++) {
                producer.send(new ProducerRecord<>(run.secondTopic, "k" + index, "v"));
            }
            producer.flush();
        }
    }
}
