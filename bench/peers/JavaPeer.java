import java.time.Duration;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Java's KafkaConsumer as a peer of bench/streams.py: a group of the coordinator with automatic commits. */
public final class JavaPeer extends BenchPeer {
    public static void main(String[] args) throws Exception {
        new JavaPeer().serve(args[0]);
    }

    @Override
    void consume(Sink sink) {
        Properties own = settingsOf(sink, "latest", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(Collections.singletonList(sink.topic));
            long deadline = System.nanoTime() + 1_000_000 * sink.timeoutMs;
            while (System.nanoTime() < deadline) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(1));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    if (sink.take(record.key(), record.value(), record.offset())) {
                        return;
                    }
                }
            }
            throw new IllegalStateException("not all messages came within " + sink.timeoutMs + " ms");
        }
    }
}
