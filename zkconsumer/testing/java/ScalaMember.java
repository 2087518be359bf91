import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import kafka.common.ConsumerRebalanceFailedException;
import kafka.consumer.Blacklist;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.ConsumerTimeoutException;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;
import org.apache.log4j.AppenderSkeleton;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.log4j.spi.LoggingEvent;

/**
 * A Scala consumer as a member of a group; writes its events to standard output.
 *
 * One argument, a properties file: the consumer's own settings, unchanged, and
 *   member.topics     name:threads,name:threads     or
 *   member.whitelist  / member.blacklist            a Java regular expression, with member.streams
 *   member.values     true: "handed" lines carry the value
 *   member.listener   true: a rebalance listener reports releases and claims (from 0.9 on)
 *   member.handle.ms  the time that a message takes to process
 *   member.survives   true: a program that continues when its streams could not be created, and reads nothing
 *
 * Standard input: "stop" (as SIGTERM does: shutdown(), then the end), "commit" (commitOffsets()), "mbeans" (one event for
 * each of Kafka's).  At the end of the input the process that started this has ended: the JVM halts.
 */
public final class ScalaMember {
    private final Lines lines = new Lines();
    private final List<Thread> threads = new ArrayList<>();
    private final boolean values;
    private final long handleMs;
    private volatile ConsumerConnector connector;

    private ScalaMember(Properties own) {
        values = Boolean.parseBoolean(own.getProperty("member.values", "false"));
        handleMs = Long.parseLong(own.getProperty("member.handle.ms", "0"));
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (InputStream in = new FileInputStream(args[0])) {
            settings.load(in);
        }
        Properties own = new Properties();
        for (String key : settings.stringPropertyNames()) {
            if (key.startsWith("member.")) {
                own.setProperty(key, settings.getProperty(key));
                settings.remove(key);
            }
        }
        new ScalaMember(own).run(own, settings);
    }

    private void run(Properties own, Properties settings) throws Exception {
        Logger.getLogger("kafka.consumer").addAppender(new LogEvents());
        Thread input = new Thread(this::obey, "sandbox-input");
        input.setDaemon(true);
        input.start();
        try {
            connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
            Runtime.getRuntime().addShutdownHook(new Thread(this::stop, "sandbox-stop"));
            lines.event("connected", "consumer", consumerId());
            if (Boolean.parseBoolean(own.getProperty("member.listener", "false"))) {
                listen();
            }
            start(own);
        } catch (Throwable e) {
            if (e instanceof ConsumerRebalanceFailedException) {
                lines.event("rebalance_failed", "error", e.toString());
            }
            lines.event("failed", "error", e.toString());
            e.printStackTrace();
            if (connector != null && Boolean.parseBoolean(own.getProperty("member.survives", "false"))) {
                return;
            }
            if (connector == null) {
                lines.close();
            }
            System.exit(3);
        }
    }

    private void start(Properties own) {
        String topics = own.getProperty("member.topics");
        if (topics != null) {
            Map<String, Integer> counts = new LinkedHashMap<>();
            for (String part : topics.split(",")) {
                int colon = part.lastIndexOf(':');
                counts.put(part.substring(0, colon), Integer.valueOf(part.substring(colon + 1)));
            }
            Map<String, List<KafkaStream<byte[], byte[]>>> streams = connector.createMessageStreams(counts);
            lines.event("started", "consumer", consumerId());
            streams.values().forEach(this::iterate);
            return;
        }
        String white = own.getProperty("member.whitelist");
        int count = Integer.parseInt(own.getProperty("member.streams", "1"));
        List<KafkaStream<byte[], byte[]>> streams = connector.createMessageStreamsByFilter(
            white != null ? new Whitelist(white) : new Blacklist(own.getProperty("member.blacklist")), count);
        lines.event("started", "consumer", consumerId());
        iterate(streams);
    }

    private void iterate(List<KafkaStream<byte[], byte[]>> streams) {
        for (int i = 0; i < streams.size(); i++) {
            KafkaStream<byte[], byte[]> stream = streams.get(i);
            int number = i;
            Thread thread = new Thread(() -> iterate(stream, number), "stream-" + i);
            threads.add(thread);
            thread.start();
        }
    }

    private void iterate(KafkaStream<byte[], byte[]> stream, int number) {
        ConsumerIterator<byte[], byte[]> iterator = stream.iterator();
        while (true) {
            try {
                if (!iterator.hasNext()) {
                    return;
                }
                MessageAndMetadata<byte[], byte[]> message = iterator.next();
                lines.handed(message.topic(), message.partition(), message.offset(), number,
                    values ? message.message() : null);
                if (handleMs > 0) {
                    Thread.sleep(handleMs);
                }
            } catch (ConsumerTimeoutException e) {
                lines.event("timed_out", "thread", number);
            } catch (InterruptedException e) {
                return;
            } catch (RuntimeException e) {
                lines.event("stream_failed", "thread", number, "error", e.toString());
                e.printStackTrace();
                return;
            }
        }
    }

    private void obey() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                if (line.equals("stop")) {
                    new Thread(() -> System.exit(0), "sandbox-exit").start();
                } else if (line.equals("commit") && connector != null) {
                    connector.commitOffsets();
                    lines.event("committed");
                } else if (line.equals("mbeans")) {
                    tellMBeans();
                } else {
                    lines.event("misunderstood", "line", line);
                }
            }
        } catch (Exception e) {
            lines.event("failed", "error", e.toString());
        }
        Runtime.getRuntime().halt(137);
    }

    private void tellMBeans() throws JMException {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        for (ObjectName name : server.queryNames(new ObjectName("*kafka*:*"), null)) {
            StringBuilder attributes = new StringBuilder();
            for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
                attributes.append(attribute.getName()).append(' ');
            }
            lines.event("mbean", "name", name.toString(), "attributes", attributes.toString().trim());
        }
        lines.event("mbeans_told");
    }

    private void stop() {
        lines.event("stopping");
        connector.shutdown();
        try {
            for (Thread thread : threads) {
                thread.join(5000);
            }
            lines.event("stopped");
            lines.close();
        } catch (InterruptedException e) {
            // No code interrupts a shutdown hook; the JVM ends either way.
        }
    }

    /** The consumer's id has no public getter in any release; null if a release stores it in another field than these. */
    private String consumerId() {
        try {
            Object scala = field(connector, "underlying");
            return (String) field(scala, "consumerIdString");
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }

    private static Object field(Object of, String end) throws ReflectiveOperationException {
        for (Field field : of.getClass().getDeclaredFields()) {
            // Scala may prefix a private name with that of its class.
            if (field.getName().equals(end) || field.getName().endsWith("$$" + end)) {
                field.setAccessible(true);
                return field.get(of);
            }
        }
        throw new NoSuchFieldException(end);
    }

    /** Through reflection, because 0.8 has no listener. */
    private void listen() throws ReflectiveOperationException {
        Class<?> type = Class.forName("kafka.javaapi.consumer.ConsumerRebalanceListener");
        Object listener = Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, args) -> {
            if (method.getName().equals("beforeReleasingPartitions")) {
                lines.event("releasing", "partitions", args[0]);
            } else if (method.getName().equals("beforeStartingFetchers")) {
                lines.event("claimed", "consumer", args[0], "partitions", args[1]);
            } else if (method.getName().equals("hashCode")) {
                return System.identityHashCode(proxy);
            } else if (method.getName().equals("equals")) {
                return proxy == args[0];
            } else if (method.getName().equals("toString")) {
                return "the sandbox's listener";
            }
            return null;
        });
        Method set = ConsumerConnector.class.getMethod("setConsumerRebalanceListener", type);
        set.invoke(connector, listener);
    }

    /** The consumer reports these events only in its log. */
    private final class LogEvents extends AppenderSkeleton {
        LogEvents() {
            setThreshold(Level.INFO);
        }

        @Override
        protected void append(LoggingEvent event) {
            String text = String.valueOf(event.getMessage());
            if (text.contains("begin rebalancing consumer")) {
                lines.event("rebalance_began", "try", attempt(text));
            } else if (text.contains("end rebalancing consumer")) {
                lines.event("rebalance_ended", "try", attempt(text));
            } else if (text.contains("error during syncedRebalance")) {
                Throwable cause = event.getThrowableInformation() == null
                    ? null : event.getThrowableInformation().getThrowable();
                lines.event("rebalance_failed", "error", cause);
            } else if (text.contains("ZK expired")) {
                lines.event("session_expired");
            }
        }

        private Integer attempt(String text) {
            int hash = text.lastIndexOf('#');
            return hash < 0 ? null : Integer.valueOf(text.substring(hash + 1).trim());
        }

        @Override
        public boolean requiresLayout() {
            return false;
        }

        @Override
        public void close() {}
    }
}
