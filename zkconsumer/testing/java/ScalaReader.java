import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import java.util.zip.ZipException;
import kafka.api.FetchRequestBuilder;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.InvalidMessageException;
import kafka.message.Message;
import kafka.message.MessageAndOffset;

/**
 * As Reader, with the Scala consumer of a release before the Java consumer (0.8.2): ISOLATION has no meaning.
 *
 * The settings: bootstrap.servers, one host:port.  Records have no timestamps.
 */
public final class ScalaReader {
    private static final int TIMEOUT_MS = 10_000;
    private static final int FETCH_BYTES = 1 << 20;

    private final Lines lines = new Lines();
    private final String host;
    private final int port;

    private ScalaReader(String address) {
        int colon = address.lastIndexOf(':');
        host = address.substring(0, colon);
        port = Integer.parseInt(address.substring(colon + 1));
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (InputStream in = new FileInputStream(args[0])) {
            settings.load(in);
        }
        new ScalaReader(settings.getProperty("bootstrap.servers")).obey();
    }

    private void obey() throws Exception {
        lines.event("started");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            try {
                read(words[1], words[2], Long.parseLong(words[3]));
            } catch (Exception e) {
                lines.event("failed", "id", words[1], "error", e.toString());
                e.printStackTrace();
            }
        }
        Runtime.getRuntime().halt(137);
    }

    private void read(String id, String topic, long until) throws Exception {
        SimpleConsumer consumer = new SimpleConsumer(host, port, TIMEOUT_MS, FETCH_BYTES, "sandbox");
        String error = null;
        long next = 0;
        try {
            while (next < until) {
                FetchResponse answer = consumer.fetch(
                    new FetchRequestBuilder().clientId("sandbox").addFetch(topic, 0, next, FETCH_BYTES).build());
                if (answer.hasError()) {
                    throw new IllegalStateException("error code " + answer.errorCode(topic, 0));
                }
                for (MessageAndOffset each : answer.messageSet(topic, 0)) {
                    // As ConsumerIterator does before it delivers a message.
                    each.message().ensureValid();
                    if (each.offset() >= next) {
                        record(each.offset(), each.message());
                        next = each.nextOffset();
                    }
                }
            }
        } catch (InvalidMessageException e) {
            error = e.toString();
        } catch (Exception e) {
            // Scala code throws the checked exceptions of Java's gzip without declaring them.
            if (!(e instanceof ZipException)) {
                throw e;
            }
            error = e.toString();
        } finally {
            consumer.close();
        }
        lines.event("read", "id", id, "error", error);
    }

    private void record(long offset, Message message) {
        lines.event("record", "offset", offset, "timestamp", -1, "type", "NO_TIMESTAMP_TYPE",
            "key", word(message.key()), "value", word(message.payload()), "headers", "");
    }

    private static String word(ByteBuffer data) {
        if (data == null) {
            return "~";
        }
        byte[] bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }
}
