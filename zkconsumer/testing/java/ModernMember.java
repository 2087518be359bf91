import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/**
 * A Java consumer of any release from 0.9 on as a member of a group; its standard output is a history.
 *
 * One argument, a properties file: the consumer's own settings, unchanged, and
 *   member.name       its name in the history
 *   member.topics     name,name
 *   member.handle.ms  the time that a message takes to process
 *   member.commit.ms  how often processed records are committed
 *
 * It commits what it has processed: at every interval, before it releases partitions, and at the end.
 *
 * Standard input: "stop" (as SIGTERM does: close(), then the end), "commit".  At the end of the input the process that
 * started this has ended: the JVM halts.
 */
public final class ModernMember implements ConsumerRebalanceListener {
    private static final long POLL_MS = 50;

    private final Lines lines = new Lines();
    private final String name;
    private final long handleMs;
    private final long commitMs;
    private final List<String> topics;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final AtomicBoolean stopping = new AtomicBoolean();
    private final AtomicBoolean commitAsked = new AtomicBoolean();
    private final Map<TopicPartition, OffsetAndMetadata> processed = new HashMap<>();
    private final Set<TopicPartition> owned = new HashSet<>();
    private boolean hasJoined;

    private ModernMember(Properties own, Properties settings) {
        name = own.getProperty("member.name");
        handleMs = Long.parseLong(own.getProperty("member.handle.ms", "0"));
        commitMs = Long.parseLong(own.getProperty("member.commit.ms", "300"));
        topics = Arrays.asList(own.getProperty("member.topics").split(","));
        consumer = new KafkaConsumer<>(settings);
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
        ModernMember member = new ModernMember(own, settings);
        System.exit(member.run() ? 0 : 3);
    }

    private boolean run() throws Exception {
        Thread input = new Thread(this::obey, "sandbox-input");
        input.setDaemon(true);
        input.start();
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            end();
            try {
                main.join(15000);
            } catch (InterruptedException e) {
                // The JVM ends either way.
            }
        }, "sandbox-stop"));
        lines.event("member", "member", name, "kind", "ours");
        boolean isClean = true;
        try {
            consumer.subscribe(topics, this);
            poll();
            lines.event("leaving", "member", name);
            commit();
        } catch (WakeupException e) {
            lines.event("leaving", "member", name);
            commit();
        } catch (Exception e) {
            isClean = false;
            e.printStackTrace();
            lines.event("note", "text", "failed " + e);
        }
        try {
            consumer.close();
        } catch (KafkaException e) {
            lines.event("note", "text", "close " + e);
        }
        giveUp(new ArrayList<>(owned));
        if (isClean) {
            lines.event("left", "member", name);
        }
        lines.close();
        // The hook waits for this thread, and exit() for the hook.
        Runtime.getRuntime().halt(isClean ? 0 : 3);
        return isClean;
    }

    private void poll() throws Exception {
        long committedAt = System.currentTimeMillis();
        while (!stopping.get()) {
            for (ConsumerRecord<byte[], byte[]> record : Poll.of(consumer, POLL_MS)) {
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                lines.event("handed", "member", name, "topic", place.topic(), "partition", place.partition(),
                    "offset", record.offset());
                if (handleMs > 0) {
                    Thread.sleep(handleMs);
                }
                processed.put(place, new OffsetAndMetadata(record.offset() + 1));
            }
            if (commitAsked.getAndSet(false)) {
                commit();
                lines.event("note", "text", "committed");
            }
            if (System.currentTimeMillis() - committedAt >= commitMs) {
                committedAt = System.currentTimeMillis();
                commit();
            }
        }
    }

    /** Commits what was processed and is not committed; an error is reported and not thrown, since the next try may succeed. */
    private void commit() {
        commit(false);
    }

    /** beforeRelease: the last commit of these partitions.  Older clients raise the same exception in each rebalance. */
    private void commit(boolean beforeRelease) {
        if (processed.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>(processed);
        try {
            consumer.commitSync(offsets);
            processed.clear();
        } catch (WakeupException e) {
            commit(beforeRelease);
        } catch (KafkaException e) {
            lines.event("note", "text", "not-committed " + e);
            if (beforeRelease && e instanceof CommitFailedException) {
                // The coordinator has removed the member, so the client does not call onPartitionsLost.
                lines.event("expired", "member", name);
            }
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        for (TopicPartition place : partitions) {
            owned.add(place);
            lines.event("claimed", "member", name, "topic", place.topic(), "partition", place.partition());
        }
        if (!hasJoined) {
            hasJoined = true;
            lines.event("joined", "member", name);
        }
        lines.event("note", "text", "assigned " + owned.size());
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit(true);
        giveUp(partitions);
    }

    /** From 2.4 on; no commit is possible, since another member may own the partitions by now. */
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        lines.event("note", "text", "lost " + partitions.size());
        lines.event("expired", "member", name);
        giveUp(partitions);
    }

    private void giveUp(Collection<TopicPartition> partitions) {
        for (TopicPartition place : partitions) {
            processed.remove(place);
            if (owned.remove(place)) {
                lines.event("released", "member", name, "topic", place.topic(), "partition", place.partition());
            }
        }
    }

    private void obey() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                if (line.equals("stop")) {
                    end();
                } else if (line.equals("commit")) {
                    commitAsked.set(true);
                } else {
                    lines.event("note", "text", "misunderstood " + line);
                }
            }
        } catch (Exception e) {
            lines.event("note", "text", "failed " + e);
        }
        Runtime.getRuntime().halt(137);
    }

    private void end() {
        stopping.set(true);
        consumer.wakeup();
    }
}
