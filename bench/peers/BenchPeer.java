import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.common.utils.AppInfoParser;

/** The protocol of the peers in Java on standard input and output; protocol.py defines the lines. */
abstract class BenchPeer {
    private static final int STAMPED_BYTES = 101;
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final PrintStream OUT = System.out;

    private final Properties settings = new Properties();

    /** Receives messages; returns true when it has enough. */
    abstract static class Sink {
        final String topic;
        final String group;
        final long timeoutMs;
        private long windowCpu;
        private long windowNanos;
        private long windowMessages;

        Sink(String topic, String group, long timeoutMs) {
            this.topic = topic;
            this.group = group;
            this.timeoutMs = timeoutMs;
        }

        abstract boolean take(byte[] key, byte[] value, long offset);

        abstract boolean isAtEnd();

        /** Called before the group is joined. */
        void before() { }

        /** Called after the group was left. */
        void after() { }

        abstract String answer();

        void begin() {
            windowCpu = SYSTEM.getProcessCpuTime();
            windowNanos = System.nanoTime();
        }

        void end(long messages) {
            windowCpu = SYSTEM.getProcessCpuTime() - windowCpu;
            windowNanos = System.nanoTime() - windowNanos;
            windowMessages = messages;
        }

        String window() {
            String form = "\"window_messages\": %d, \"window_cpu_s\": %.6f, \"window_s\": %.6f, \"cpu_s\": %.6f";
            return String.format(Locale.ROOT, form,
                windowMessages, windowCpu / 1e9, windowNanos / 1e9, SYSTEM.getProcessCpuTime() / 1e9);
        }
    }

    private static final class Read extends Sink {
        private final long messages;
        private long count;
        private long offsets;
        private long bytes;
        private long keyBytes;

        Read(String[] words) {
            super(words[1], words[2], 1000 * Long.parseLong(words[5]));
            messages = Long.parseLong(words[3]);
        }

        @Override
        boolean take(byte[] key, byte[] value, long offset) {
            offsets += offset;
            bytes += value.length;
            keyBytes += key.length;
            return ++count == messages;
        }

        @Override
        boolean isAtEnd() {
            return false;
        }

        @Override
        void before() {
            begin();
        }

        @Override
        void after() {
            end(count);
        }

        @Override
        String answer() {
            return String.format(Locale.ROOT, "{\"messages\": %d, \"offsets\": %d, \"bytes\": %d, \"key_bytes\": %d, %s}",
                count, offsets, bytes, keyBytes, window());
        }
    }

    private static final class Tail extends Sink {
        private final long settleUs;
        private final long windowUs;
        private long[] latenciesUs = new long[1024];
        private int stamped;
        private long beginUs;
        private long endUs;
        private long atBegin;
        private long count;
        private long touched;

        Tail(String[] words) {
            super(words[1], words[2], 1000 * Long.parseLong(words[5]));
            settleUs = 1_000_000 * Long.parseLong(words[3]);
            windowUs = 1_000_000 * Long.parseLong(words[4]);
        }

        @Override
        boolean take(byte[] key, byte[] value, long offset) {
            count++;
            touched += key.length + offset;
            return value.length == STAMPED_BYTES && stamped(value);
        }

        private boolean stamped(byte[] value) {
            Instant now = Instant.now();
            long nowUs = now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
            if (beginUs == 0) {
                beginUs = nowUs + settleUs;
            }
            if (nowUs < beginUs) {
                return false;
            }
            if (endUs == 0) {
                endUs = nowUs + windowUs;
                atBegin = count;
                begin();
            }
            if (stamped == latenciesUs.length) {
                latenciesUs = Arrays.copyOf(latenciesUs, 2 * stamped);
            }
            latenciesUs[stamped++] = nowUs - ByteBuffer.wrap(value).getLong();
            if (nowUs < endUs) {
                return false;
            }
            end(count - atBegin);
            return true;
        }

        @Override
        boolean isAtEnd() {
            return true;
        }

        @Override
        String answer() {
            return String.format(Locale.ROOT, "{\"messages\": %d, \"touched\": %d, %s, \"latencies_us\": %s}",
                count, touched, window(), Arrays.toString(Arrays.copyOf(latenciesUs, stamped)));
        }
    }

    /** Join the group, pass messages to the sink until it has enough, and leave. */
    abstract void consume(Sink sink) throws Exception;

    /** The settings of one consumer, with the value of {@code auto.offset.reset} in its release. */
    final Properties settingsOf(Sink sink, String resetToEnd, String resetToBeginning) {
        Properties own = new Properties();
        own.putAll(settings);
        own.setProperty("group.id", sink.group);
        own.setProperty("auto.offset.reset", sink.isAtEnd() ? resetToEnd : resetToBeginning);
        return own;
    }

    void serve(String file) throws Exception {
        try (InputStream in = new FileInputStream(file)) {
            settings.load(in);
        }
        OUT.println(String.format(Locale.ROOT, "{\"ready\": {\"version\": \"%s\", \"java\": \"%s\"}}",
            AppInfoParser.getVersion(), System.getProperty("java.version")));
        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        Thread input = new Thread(() -> listen(lines), "input");
        input.setDaemon(true);
        input.start();
        while (true) {
            String[] words = lines.take().split(" ");
            try {
                Sink sink = words[0].equals("read") ? new Read(words) : new Tail(words);
                sink.before();
                consume(sink);
                sink.after();
                OUT.println(sink.answer());
            } catch (Throwable error) {
                error.printStackTrace();
                OUT.println("{\"failed\": \"" + error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"}");
            }
        }
    }

    /** The JVM ends at the end of the input, also during a reading. */
    private static void listen(BlockingQueue<String> lines) {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                lines.add(line);
            }
        } catch (IOException error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(0);
    }
}
