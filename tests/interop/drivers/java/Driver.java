// The Java client behind the driver's calls (see driver_protocol.py for what they mean).
// Consumers have no group id and assign. A token is given by a callback handler of its own, which
// does not look into it: the broker decides whether it is valid. A producer that may not log in
// tries again for two minutes; so an administrator with the same settings connects first, which
// fails at once.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int TIMEOUT_MS = 30_000;
    private static final int REQUEST_BYTES_MAX = 4 << 20;

    private static final String MODULES = "org.apache.kafka.common.security.";

    private Map<String, Object> basic;
    private boolean isSecured = false;
    private final Admin admin;

    Driver(String bootstrap) {
        this.basic = Map.of("bootstrap.servers", bootstrap);
        this.admin = Admin.create(basic);
    }

    private Map<String, Object> settings(Map<String, Object> more) {
        Map<String, Object> all = new HashMap<>(more);
        all.putAll(basic);
        return all;
    }

    private JsonNode secure(JsonNode security) throws IOException {
        String mechanism = security.get("mechanism").asText();
        basic = new HashMap<>(Map.of(
            "bootstrap.servers", security.get("bootstrap").asText(),
            "security.protocol", security.get("protocol").asText(),
            "ssl.truststore.type", "PEM",
            "ssl.truststore.location", security.get("ca").asText()));
        if (!security.get("key").asText().isEmpty()) {
            basic.put("ssl.keystore.type", "PEM");
            basic.put("ssl.keystore.key", Files.readString(Path.of(security.get("key").asText())));
            basic.put("ssl.keystore.certificate.chain",
                Files.readString(Path.of(security.get("certificate").asText())));
        }
        if (mechanism.equals("OAUTHBEARER")) {
            basic.put("sasl.login.callback.handler.class", GivenToken.class.getName());
            basic.put("sasl.jaas.config", MODULES + "oauthbearer.OAuthBearerLoginModule required"
                + " token=\"" + security.get("token").asText() + "\";");
        } else if (!mechanism.isEmpty()) {
            String module = mechanism.equals("PLAIN") ? "plain.Plain" : "scram.Scram";
            basic.put("sasl.jaas.config", MODULES + module + "LoginModule required username=\""
                + security.get("user").asText() + "\" password=\""
                + security.get("password").asText() + "\";");
        }
        if (!mechanism.isEmpty()) {
            basic.put("sasl.mechanism", mechanism);
        }
        isSecured = true;
        return JSON.nullNode();
    }

    private void connectSecured() throws Exception {
        try (Admin secured = Admin.create(basic)) {
            secured.describeCluster().nodes().get();
        }
    }

    /** Returns the token of the JAAS settings, as one that is valid for some minutes. */
    public static class GivenToken implements AuthenticateCallbackHandler, OAuthBearerToken {
        private final long begun = System.currentTimeMillis();
        private String token;

        @Override
        public void configure(
                Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
            token = (String) entries.get(0).getOptions().get("token");
        }

        @Override
        public void handle(Callback[] callbacks) {
            for (Callback callback : callbacks) {
                if (callback instanceof OAuthBearerTokenCallback asked) {
                    asked.token(this);
                }
            }
        }

        @Override
        public String value() {
            return token;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return begun + 300_000;
        }

        @Override
        public Long startTimeMs() {
            return begun;
        }

        @Override
        public String principalName() {
            return "interop";
        }

        @Override
        public void close() {
        }
    }

    private static byte[] bytes(JsonNode node) throws IOException {
        return node.isNull() ? null : node.binaryValue();
    }

    private JsonNode describeCluster() throws Exception {
        var found = admin.describeCluster();
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode nodes = answer.putArray("nodes");
        for (Node node : found.nodes().get()) {
            nodes.addObject().put("id", node.id()).put("host", node.host()).put("port", node.port());
        }
        return answer.put("controller", found.controller().get().id())
            .put("cluster_id", found.clusterId().get());
    }

    private JsonNode createTopic(JsonNode call) throws Exception {
        Map<String, String> configs = new HashMap<>();
        call.get("configs").fields().forEachRemaining(
            entry -> configs.put(entry.getKey(), entry.getValue().asText()));
        NewTopic topic = new NewTopic(
            call.get("topic").asText(), call.get("partitions").asInt(), (short) 1);
        admin.createTopics(List.of(topic.configs(configs))).all().get();
        return JSON.nullNode();
    }

    private JsonNode deleteTopic(JsonNode call) throws Exception {
        admin.deleteTopics(List.of(call.get("topic").asText())).all().get();
        return JSON.nullNode();
    }

    private JsonNode listTopics() throws Exception {
        var options = new ListTopicsOptions().listInternal(true);
        return JSON.valueToTree(new TreeSet<>(admin.listTopics(options).names().get()));
    }

    private static ArrayNode ids(List<Node> nodes) {
        ArrayNode answer = JSON.createArrayNode();
        nodes.forEach(node -> answer.add(node.id()));
        return answer;
    }

    private JsonNode describeTopic(JsonNode call) throws Exception {
        String name = call.get("topic").asText();
        var found = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        ObjectNode answer = JSON.createObjectNode();
        answer.put("name", found.name()).put("topic_id", found.topicId().toString());
        ArrayNode partitions = answer.putArray("partitions");
        for (var one : found.partitions()) {
            ObjectNode partition = partitions.addObject();
            partition.put("id", one.partition()).put("leader", one.leader().id());
            partition.set("replicas", ids(one.replicas()));
            partition.set("isr", ids(one.isr()));
        }
        return answer;
    }

    private JsonNode topicConfigs(JsonNode call) throws Exception {
        var resource =
            new ConfigResource(ConfigResource.Type.TOPIC, call.get("topic").asText());
        var found = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        ObjectNode answer = JSON.createObjectNode();
        for (JsonNode name : call.get("names")) {
            answer.put(name.asText(), found.get(name.asText()).value());
        }
        return answer;
    }

    private JsonNode listOffset(JsonNode call) throws Exception {
        OffsetSpec spec = switch (call.get("at").asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(call.get("number").asLong());
        };
        TopicPartition place = place(call);
        return JSON.valueToTree(admin.listOffsets(Map.of(place, spec)).all().get().get(place).offset());
    }

    private static TopicPartition place(JsonNode call) {
        return new TopicPartition(call.get("topic").asText(), call.get("partition").asInt());
    }

    private static ProducerRecord<byte[], byte[]> toSend(String topic, JsonNode record)
            throws IOException {
        JsonNode timestamp = record.get("timestamp_ms");
        var answer = new ProducerRecord<>(
            topic, record.get("partition").asInt(), timestamp.isNull() ? null : timestamp.asLong(),
            bytes(record.get("key")), bytes(record.get("value")));
        for (JsonNode header : record.get("headers")) {
            answer.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return answer;
    }

    private JsonNode produce(JsonNode call) throws Exception {
        Map<String, Object> settings = settings(Map.of(
            "compression.type", call.get("codec").asText(),
            "acks", call.get("acks").asText(),
            "enable.idempotence", call.get("idempotence").asBoolean(),
            "max.request.size", REQUEST_BYTES_MAX,
            "linger.ms", 5,
            "request.timeout.ms", TIMEOUT_MS - 1000,
            "delivery.timeout.ms", TIMEOUT_MS));
        ArrayNode places = JSON.createArrayNode();
        if (isSecured) {
            connectSecured();
        }
        try (var producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : call.get("records")) {
                sent.add(producer.send(toSend(call.get("topic").asText(), record)));
            }
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata told = future.get();
                places.addArray().add(told.partition()).add(told.offset());
            }
        }
        return places;
    }

    private void seek(KafkaConsumer<byte[], byte[]> consumer, JsonNode call) {
        TopicPartition place = place(call);
        long number = call.get("number").asLong();
        consumer.assign(List.of(place));
        switch (call.get("at").asText()) {
            case "offset" -> consumer.seek(place, number);
            case "earliest" -> consumer.seekToBeginning(List.of(place));
            case "latest" -> consumer.seekToEnd(List.of(place));
            default -> consumer.seek(
                place, consumer.offsetsForTimes(Map.of(place, number)).get(place).offset());
        }
        consumer.position(place);
    }

    private JsonNode fetch(JsonNode call) throws Exception {
        Map<String, Object> settings = settings(Map.of(
            "enable.auto.commit", false,
            "auto.offset.reset", "none",
            "max.partition.fetch.bytes", REQUEST_BYTES_MAX));
        int count = call.get("count").asInt();
        ArrayNode records = JSON.createArrayNode();
        try (var consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            seek(consumer, call);
            if (!call.get("then_produce").isNull()) {
                produce(call.get("then_produce"));
            }
            long deadline = System.nanoTime() + call.get("timeout_ms").asLong() * 1_000_000;
            while (records.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    if (records.size() < count) {
                        records.add(toJson(record));
                    }
                }
            }
        }
        return records;
    }

    private static JsonNode toJson(ConsumerRecord<byte[], byte[]> record) {
        boolean append = record.timestampType() == TimestampType.LOG_APPEND_TIME;
        ObjectNode answer = JSON.createObjectNode();
        answer.put("partition", record.partition()).put("offset", record.offset())
            .put("key", record.key()).put("value", record.value())
            .put("timestamp_ms", record.timestamp())
            .put("timestamp_type", append ? "append" : "create");
        ArrayNode headers = answer.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
        return answer;
    }

    private JsonNode answer(JsonNode call) throws Exception {
        return switch (call.get("op").asText()) {
            case "describe_cluster" -> describeCluster();
            case "create_topic" -> createTopic(call);
            case "delete_topic" -> deleteTopic(call);
            case "list_topics" -> listTopics();
            case "describe_topic" -> describeTopic(call);
            case "topic_configs" -> topicConfigs(call);
            case "list_offset" -> listOffset(call);
            case "produce" -> produce(call);
            case "fetch" -> fetch(call);
            case "secure" -> secure(call.get("security"));
            default -> throw new IllegalArgumentException("no such call: " + call);
        };
    }

    private static JsonNode error(Throwable problem) {
        Throwable inner = problem;
        while ((inner instanceof ExecutionException || inner instanceof CompletionException)
                && inner.getCause() != null) {
            inner = inner.getCause();
        }
        Errors known = Errors.forException(inner);
        ObjectNode answer = JSON.createObjectNode();
        answer.put("class", inner.getClass().getSimpleName());
        if (known == Errors.UNKNOWN_SERVER_ERROR) {
            answer.putNull("code");
        } else {
            answer.put("code", known.code());
        }
        return answer.put("message", String.valueOf(inner.getMessage()));
    }

    public static void main(String[] arguments) throws IOException {
        Driver driver = new Driver(arguments[0]);
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", driver.answer(JSON.readTree(line)));
            } catch (Exception problem) {
                problem.printStackTrace();
                answer.set("error", error(problem));
            }
            output.println(answer);
        }
        driver.admin.close();
    }
}
