import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.KafkaStream;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * Many Scala consumers in one JVM, each a member, that read only as many messages as they are allowed to.
 *
 * Commands on standard input, one a line:
 *   start NAME NUMBER TOPIC STREAMS ALLOWED HANDLE_MS FILE   joins; FILE has the consumer's own settings.  NUMBER is
 *                                                            "thread" in its "handed" lines
 *   allow NAME COUNT                                         this number of messages more
 *   stop  NAME                                               shutdown(), which commits
 * Each event but "handed" names its "member".  The end of standard input halts the JVM.
 */
public final class ScalaHost {
    private static final int PATIENCE_MS = 20;

    private final Lines lines = new Lines();
    private final Map<String, Member> members = Collections.synchronizedMap(new HashMap<>());

    public static void main(String[] args) {
        new ScalaHost().obey();
    }

    private void obey() {
        lines.event("ready");
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                obey(line.split(" "));
            }
        } catch (Exception e) {
            lines.event("failed", "member", "host", "error", e.toString());
            e.printStackTrace();
        }
        Runtime.getRuntime().halt(137);
    }

    private void obey(String[] words) {
        Member member = members.get(words[1]);
        switch (words[0]) {
            case "start":
                member = new Member(words);
                members.put(words[1], member);
                new Thread(member::start, "start-" + words[1]).start();
                return;
            case "allow":
                member.allowed.release(Integer.parseInt(words[2]));
                return;
            case "stop":
                new Thread(member::stop, "stop-" + words[1]).start();
                return;
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private final class Member {
        private final Semaphore allowed;
        private final String name;
        private final int number;
        private final String topic;
        private final int streams;
        private final long handleMs;
        private final String file;
        private final List<Thread> threads = new ArrayList<>();
        private ConsumerConnector connector;
        private volatile boolean stopping;

        Member(String[] words) {
            name = words[1];
            number = Integer.parseInt(words[2]);
            topic = words[3];
            streams = Integer.parseInt(words[4]);
            allowed = new Semaphore(Integer.parseInt(words[5]));
            handleMs = Long.parseLong(words[6]);
            file = words[7];
        }

        /** Synchronized with stop(): a member that receives "stop" while it joins stops when it has joined. */
        synchronized void start() {
            if (stopping) {
                return;
            }
            Properties settings = new Properties();
            try (InputStream in = new FileInputStream(file)) {
                settings.load(in);
                connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
                List<KafkaStream<byte[], byte[]>> made =
                    connector.createMessageStreams(Collections.singletonMap(topic, streams)).get(topic);
                lines.event("started", "member", name);
                for (KafkaStream<byte[], byte[]> stream : made) {
                    Thread thread = new Thread(() -> iterate(stream), "stream-" + name);
                    threads.add(thread);
                    thread.start();
                }
            } catch (Exception e) {
                lines.event("failed", "member", name, "error", e.toString());
                e.printStackTrace();
            }
        }

        private void iterate(KafkaStream<byte[], byte[]> stream) {
            ConsumerIterator<byte[], byte[]> iterator = stream.iterator();
            try {
                while (true) {
                    // Before hasNext(), which already takes a message that a rebalance would not return to the queue.
                    while (!allowed.tryAcquire(PATIENCE_MS, TimeUnit.MILLISECONDS)) {
                        if (stopping) {
                            return;
                        }
                    }
                    if (stopping || !iterator.hasNext()) {
                        return;
                    }
                    MessageAndMetadata<byte[], byte[]> message = iterator.next();
                    lines.handed(message.topic(), message.partition(), message.offset(), number, null);
                    if (handleMs > 0) {
                        Thread.sleep(handleMs);
                    }
                }
            } catch (InterruptedException e) {
                return;
            } catch (RuntimeException e) {
                lines.event("failed", "member", name, "error", e.toString());
                e.printStackTrace();
            }
        }

        void stop() {
            stopping = true;
            synchronized (this) {
                try {
                    // First the threads: a message that one of them takes while shutdown() commits would be read again.
                    for (Thread thread : threads) {
                        thread.join(10 * PATIENCE_MS);
                    }
                    if (connector != null) {
                        connector.shutdown();
                    }
                    for (Thread thread : threads) {
                        thread.join(5000);
                    }
                } catch (InterruptedException e) {
                    // No code interrupts this thread.
                } catch (RuntimeException e) {
                    lines.event("failed", "member", name, "error", e.toString());
                    e.printStackTrace();
                }
            }
            lines.event("stopped", "member", name);
        }
    }
}
