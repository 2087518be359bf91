import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/**
 * Reads on command, with the Java consumer of the release in the class path (0.10 and later).
 *
 * One argument, a properties file with consumer settings.  Commands on standard input, one a line:
 *   read ID TOPIC UNTIL ISOLATION    partition 0 from offset 0 up to the position UNTIL
 *
 * An event "record" for each record: keys, values, and names and values of headers as in Load.  Then an event "read" with
 * ID; if the consumer rejected a record, "error" contains the reason.
 *
 * At the end of standard input the process that started this has ended: the JVM halts.
 */
public final class Reader {
    private static final long POLL_MS = 50;

    private final Lines lines = new Lines();
    private final Properties settings;

    private Reader(Properties settings) {
        this.settings = settings;
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (InputStream in = new FileInputStream(args[0])) {
            settings.load(in);
        }
        new Reader(settings).obey();
    }

    private void obey() throws Exception {
        lines.event("started");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            try {
                read(words[1], words[2], Long.parseLong(words[3]), words[4]);
            } catch (Exception e) {
                lines.event("failed", "id", words[1], "error", e.toString());
                e.printStackTrace();
            }
        }
        Runtime.getRuntime().halt(137);
    }

    private void read(String id, String topic, long until, String isolation) throws Exception {
        Properties own = new Properties();
        own.putAll(settings);
        own.setProperty("isolation.level", isolation);
        TopicPartition place = new TopicPartition(topic, 0);
        String error = null;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(own)) {
            consumer.assign(Collections.singletonList(place));
            consumer.seek(place, 0);
            while (consumer.position(place) < until) {
                for (ConsumerRecord<byte[], byte[]> record : Poll.of(consumer, POLL_MS)) {
                    lines.event("record", "offset", record.offset(), "timestamp", record.timestamp(),
                        "type", record.timestampType().name(), "key", word(record.key()), "value", word(record.value()),
                        "headers", headers(record));
                }
            }
        } catch (KafkaException e) {
            error = e.getCause() == null ? e.toString() : e + "; cause: " + e.getCause();
        }
        lines.event("read", "id", id, "error", error);
    }

    private static String word(byte[] data) {
        return data == null ? "~" : Base64.getEncoder().encodeToString(data);
    }

    /** Through reflection: the record of 0.10 has no headers. */
    private static String headers(ConsumerRecord<byte[], byte[]> record) throws Exception {
        StringBuilder words = new StringBuilder();
        Iterable<?> headers;
        try {
            headers = (Iterable<?>) ConsumerRecord.class.getMethod("headers").invoke(record);
        } catch (NoSuchMethodException e) {
            return "";
        }
        Class<?> header = Class.forName("org.apache.kafka.common.header.Header");
        for (Object each : headers) {
            String name = (String) header.getMethod("key").invoke(each);
            byte[] value = (byte[]) header.getMethod("value").invoke(each);
            words.append(words.length() == 0 ? "" : ";").append(word(name.getBytes(StandardCharsets.UTF_8)));
            words.append(';').append(word(value));
        }
        return words.toString();
    }
}
