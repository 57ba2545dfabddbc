// A member of a share group that acknowledges each record explicitly and waits for the answer.
//
//     java ShareAcknowledger BOOTSTRAP TOPIC GROUP POLLS
//
// Each poll returns one record (share.acquire.mode = record_limit); it is accepted, and commitSync is timed. The first quarter of POLLS is not
// counted, because Java compiles meanwhile. Prints one JSON object with percentiles in microseconds. A refused
// acknowledgement, or no record for a minute, ends it with an error.

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ShareAcknowledger {
    private static final long POLL_NANOS_MAX = Duration.ofMinutes(1).toNanos();

    private static double percentile(long[] sorted, double share) {
        return sorted[(int) Math.min(sorted.length - 1, Math.round(share * sorted.length))] / 1e3;
    }

    public static void main(String[] arguments) {
        int polls = Integer.parseInt(arguments[3]);
        int before = polls / 4;
        long[] nanos = new long[polls];
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[2],
            "share.acknowledgement.mode", "explicit",
            "share.acquire.mode", "record_limit",
            "max.poll.records", 1);
        try (var consumer = new KafkaShareConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[1]));
            long waitedSince = System.nanoTime();
            for (int done = -before; done < polls;) {
                var records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty()) {
                    if (System.nanoTime() - waitedSince > POLL_NANOS_MAX) {
                        throw new IllegalStateException("no record for a minute, after " + (done + before));
                    }
                    continue;
                }
                records.forEach(record -> consumer.acknowledge(record, AcknowledgeType.ACCEPT));
                long begun = System.nanoTime();
                var outcomes = consumer.commitSync();
                waitedSince = System.nanoTime();
                outcomes.forEach((partition, error) -> {
                    if (error.isPresent()) {
                        throw new IllegalStateException("an acknowledgement was refused", error.get());
                    }
                });
                if (done >= 0) {
                    nanos[done] = waitedSince - begun;
                }
                done++;
            }
        }
        Arrays.sort(nanos);
        System.out.printf(
            Locale.ROOT,
            "{\"acknowledgements\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f, \"highest_us\": %.1f}%n",
            polls, percentile(nanos, 0.50), percentile(nanos, 0.99), nanos[polls - 1] / 1e3);
    }
}
