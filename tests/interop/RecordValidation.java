// Asks Apache Kafka's own classes what a leader does with produced records.
//
// Reads one case for each line: produce version, max.message.bytes, compacted, timestamp type, before.max.ms,
// after.max.ms, the time, the topic's codec (-1: producer) and the records field in hex. Writes one line for each:
// "ok MAX_TIMESTAMP HEX-OF-THE-BATCH" or "CODE message". The three checks that Kafka does inside its log class
// (base offset, size, checksum, in this order) are repeated here, because that class wants a log directory.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class RecordValidation {
    private static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    };

    private static Time fixed(long now) {
        return (Time) java.lang.reflect.Proxy.newProxyInstance(
            Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, arguments) -> method.getName().equals("milliseconds") ? now : 0L);
    }

    private static String validate(String line) {
        String[] fields = line.split(" ", -1);
        short version = Short.parseShort(fields[0]);
        int bytesMax = Integer.parseInt(fields[1]);
        byte[] bytes = HexFormat.of().parseHex(fields[8]);
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        ProduceRequest.validateRecords(version, records);
        CompressionType source = CompressionType.NONE;
        int validBytes = 0;
        for (MutableRecordBatch batch : records.batches()) {
            if (batch.baseOffset() != 0)
                throw new InvalidRecordException("base offset");
            if (batch.sizeInBytes() > bytesMax)
                throw new RecordTooLargeException("too large");
            if (!batch.isValid())
                throw new CorruptRecordException("checksum");
            validBytes += batch.sizeInBytes();
            source = batch.compressionType();
        }
        records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes, 0, validBytes).slice());
        int codec = Integer.parseInt(fields[7]);
        CompressionType target = codec < 0 ? source : CompressionType.forId(codec);
        LogValidator.ValidationResult result = new LogValidator(
            records, new TopicPartition("topic", 0), fixed(Long.parseLong(fields[6])), source,
            Compression.of(target).build(), fields[2].equals("1"), (byte) 2,
            fields[3].equals("1") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            Long.parseLong(fields[4]), Long.parseLong(fields[5]), -1, AppendOrigin.CLIENT
        ).validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), NO_METRICS, BufferSupplier.NO_CACHING);
        ByteBuffer output = result.validatedRecords().buffer();
        if (result.messageSizeMaybeChanged() && output.remaining() > bytesMax)
            throw new RecordTooLargeException("too large after recompression");
        byte[] batch = new byte[output.remaining()];
        output.get(batch);
        return "ok " + result.maxTimestampMs() + " " + HexFormat.of().formatHex(batch);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                answer = validate(line);
            } catch (Throwable error) {
                Throwable reason = error instanceof RecordValidationException wrapper
                    ? wrapper.invalidException() : error;
                answer = Errors.forException(reason).code() + " " + reason;
            }
            System.out.println(answer.replace('\n', ' '));
        }
    }
}
