import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Transactions: commit, abort, offsets in a transaction, fencing, and what an Admin client sees.
 *
 * <p>It does NOT check crashes or coordinators that move: see tests/crash and tests/histories.
 */
final class TransactionChecks {
    private static final String LAST = "last";
    private static final int RECORDS_OF_TRANSACTION = 10;
    private static final long READ_MILLIS_MAX = 20_000;
    private static final long COPY_MILLIS_MAX = 30_000;

    private final Checks checks;
    private final RunContext run;
    private final Admin admin;

    TransactionChecks(Checks checks, RunContext run, Admin admin) {
        this.checks = checks;
        this.run = run;
        this.admin = admin;
    }

    void commitAndFence() {
        checks.check("txn commit+abort, read_committed", this::commitAndAbort);
        checks.checkResult("txn sendOffsetsToTransaction", this::copyWithOffsets);
        checks.checkResult("txn zombie fenced", this::fenceZombie);
        checks.checkResult("listTransactions", () -> admin.listTransactions().all().get().size());
        checks.checkResult("describeTransactions", () ->
            admin.describeTransactions(List.of(run.transactionalId)).all().get());
        checks.checkResult("describeProducers", () ->
            admin.describeProducers(List.of(run.partition)).all().get().get(run.partition).activeProducers().size());
        checks.check("fenceProducers", () -> admin.fenceProducers(List.of(run.transactionalId)).all().get());
        checks.check("forceTerminateTransaction", () ->
            admin.forceTerminateTransaction(run.transactionalId).result().get());
        AbortTransactionSpec unknown = new AbortTransactionSpec(run.partition, 999_999, (short) 1, 0);
        checks.check("abortTransaction unknown pid", () -> admin.abortTransaction(unknown).all().get());
    }

    /** Commit ten records, abort ten, commit one: a reader of committed records sees eleven. */
    private void commitAndAbort() throws Exception {
        String topic = run.transactionTopic;
        try (KafkaProducer<String, String> producer = transactional(run.transactionalId);
                KafkaConsumer<String, String> consumer =
                    run.consumerFromStart("rc" + run.id, Map.of("isolation.level", "read_committed"))) {
            producer.initTransactions();
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            producer.beginTransaction();
            send(producer, topic, "c");
            producer.commitTransaction();
            producer.beginTransaction();
            send(producer, topic, "x");
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "a", LAST));
            producer.commitTransaction();

            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            Checks.assertEqual(RECORDS_OF_TRANSACTION + 1, readUntilLast(consumer).size());
            // 21 records and three markers
            Checks.assertEqual(24L, consumer.endOffsets(List.of(partition)).get(partition));
        }
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String prefix) {
        for (int index = 0; index < RECORDS_OF_TRANSACTION; index++) {
            producer.send(new ProducerRecord<>(topic, "a", prefix + index));
        }
    }

    private static List<String> readUntilLast(KafkaConsumer<String, String> consumer) {
        List<String> values = new ArrayList<>();
        long end = System.currentTimeMillis() + READ_MILLIS_MAX;
        while (!values.contains(LAST) && System.currentTimeMillis() < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(RunContext.POLL)) {
                values.add(record.value());
            }
        }
        return values;
    }

    /** Copy the topic, each poll with its offsets in one transaction. */
    private String copyWithOffsets() throws Exception {
        String group = "eos" + run.id;
        Map<String, Object> settings = Map.of("enable.auto.commit", false, "isolation.level", "read_committed");
        try (KafkaProducer<String, String> producer = transactional("txo" + run.id);
                KafkaConsumer<String, String> consumer = run.consumerFromStart(group, settings)) {
            producer.initTransactions();
            consumer.subscribe(List.of(run.topic));
            int copied = 0;
            long end = System.currentTimeMillis() + COPY_MILLIS_MAX;
            while (copied < RunContext.RECORDS && System.currentTimeMillis() < end) {
                ConsumerRecords<String, String> records = consumer.poll(RunContext.POLL);
                if (!records.isEmpty()) {
                    copy(producer, consumer, records);
                    copied += records.count();
                }
            }
            Checks.assertEqual(RunContext.RECORDS, copied);
        }
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().size() + " offsets";
    }

    private void copy(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(run.secondTopic, record.key(), record.value()));
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
    }

    private String fenceZombie() throws Exception {
        try (KafkaProducer<String, String> zombie = transactional("z" + run.id);
                KafkaProducer<String, String> successor = transactional("z" + run.id)) {
            zombie.initTransactions();
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(run.secondTopic, "a", "b")).get();
            successor.initTransactions();
            return Checks.expectError(ProducerFencedException.class, zombie::commitTransaction);
        }
    }

    private KafkaProducer<String, String> transactional(String transactionalId) {
        return run.producer(Map.of("transactional.id", transactionalId));
    }
}
