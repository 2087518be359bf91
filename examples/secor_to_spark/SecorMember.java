import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.ConsumerTimeoutException;
import kafka.consumer.KafkaStream;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * The old member: a program on the original high-level consumer that copies a topic into files, in the order of Secor.
 *
 *   1  read records into the open file of their partition                      (MessageWriter of Secor)
 *   2  when the file is old enough: read the stored offset of the partition    (Uploader.checkTopicPartition)
 *        it is the one that we stored or saw last   upload the file: step 3
 *        it is after our last record                another member has these records: drop the file
 *        it is between                              drop the records before it; upload at the next check
 *   3  take the lock of the partition, read the stored offset again, upload    (Uploader.uploadFiles)
 *      for several seconds, then write the offset: unconditionally, whatever is stored by then
 *
 * The lock is one of Secor's members alone: a member of another kind, like Spark, can acquire the partition and move its
 * offset while step 3 runs.  Then the records of this upload are read twice.
 *
 * One argument, a properties file: the consumer's own settings, and
 *   secor.topic, secor.threads      what is read, by how many threads
 *   secor.target                    the folder of the files: TOPIC/PARTITION/FIRST-LAST.MEMBER.tsv, lines of offset, value
 *   secor.upload.ms                 how long an upload takes
 *   secor.file.age.ms               how old a file is when it is uploaded
 *   secor.stop                      what SIGTERM does first: finish-uploads, or release-partitions
 *
 * An open file is a list in memory here.  Standard output has one JSON object a line for each event.
 */
public final class SecorMember {
    private static final long CHECK_EVERY_MS = 200;
    private static final long LOCK_RETRY_MS = 50;
    private static final int SESSION_TIMEOUT_MS = 30_000;

    private record Partition(String topic, int number) {}

    /** The content of the znode of an offset, and the number of writes since it was created; -1, -1: there is none. */
    private record Stored(long offset, int version) {}

    private record OpenFile(TreeMap<Long, String> records, long openedMs) {}

    private final String group;
    private final String member;
    private final Path target;
    private final long uploadMs;
    private final long fileAgeMs;
    private final boolean finishesUploads;
    private final ZooKeeper zookeeper;
    private final List<Thread> threads = new ArrayList<>();
    private ConsumerConnector connector;
    private volatile boolean stopping;

    private SecorMember(Properties settings) throws Exception {
        group = settings.getProperty("group.id");
        member = settings.getProperty("consumer.id");
        target = Path.of(settings.getProperty("secor.target"));
        uploadMs = Long.parseLong(settings.getProperty("secor.upload.ms"));
        fileAgeMs = Long.parseLong(settings.getProperty("secor.file.age.ms"));
        finishesUploads = settings.getProperty("secor.stop").equals("finish-uploads");
        // A session of its own, as in Secor: offsets are written also when the consumer has left the group.
        CountDownLatch connected = new CountDownLatch(1);
        zookeeper = new ZooKeeper(settings.getProperty("zookeeper.connect"), SESSION_TIMEOUT_MS, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        connected.await();
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (InputStream in = new FileInputStream(args[0])) {
            settings.load(in);
        }
        Thread input = new Thread(SecorMember::haltAtEndOfInput, "input");
        input.setDaemon(true);
        input.start();
        try {
            new SecorMember(settings).start(settings);
        } catch (Throwable e) {
            event("failed", "error", e.toString());
            e.printStackTrace();
            System.exit(3);
        }
    }

    private void start(Properties settings) {
        Properties own = new Properties();
        settings.stringPropertyNames().stream().filter(key -> !key.startsWith("secor."))
            .forEach(key -> own.setProperty(key, settings.getProperty(key)));
        connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(own));
        Runtime.getRuntime().addShutdownHook(new Thread(this::stop, "stop"));
        String topic = settings.getProperty("secor.topic");
        Map<String, Integer> counts = Map.of(topic, Integer.valueOf(settings.getProperty("secor.threads")));
        for (KafkaStream<byte[], byte[]> stream : connector.createMessageStreams(counts).get(topic)) {
            Thread thread = new Thread(new Worker(stream), "worker-" + threads.size());
            threads.add(thread);
            thread.start();
        }
        event("started", "consumer", group + "_" + member);
    }

    /** The consumer releases its partitions at once when it is shut down; an upload that runs is finished either way. */
    private void stop() {
        stopping = true;
        event("stopping");
        try {
            if (finishesUploads) {
                join();
            }
            connector.shutdown();
            event("released");
            join();
            zookeeper.close();
            event("stopped");
        } catch (InterruptedException e) {
            // No code interrupts a shutdown hook; the JVM ends either way.
        }
    }

    private void join() throws InterruptedException {
        for (Thread thread : threads) {
            thread.join();
        }
    }

    /** One stream, with its open files and what it has seen of its partitions. */
    private final class Worker implements Runnable {
        private final KafkaStream<byte[], byte[]> stream;
        private final Map<Partition, OpenFile> files = new LinkedHashMap<>();
        private final Map<Partition, Long> lastSeen = new HashMap<>();
        private final Map<Partition, Long> committed = new HashMap<>();

        Worker(KafkaStream<byte[], byte[]> stream) {
            this.stream = stream;
        }

        @Override
        public void run() {
            try {
                ConsumerIterator<byte[], byte[]> iterator = stream.iterator();
                long checkedMs = System.currentTimeMillis();
                while (!stopping && readNext(iterator)) {
                    if (System.currentTimeMillis() - checkedMs >= CHECK_EVERY_MS) {
                        for (Partition partition : List.copyOf(files.keySet())) {
                            check(partition);
                        }
                        checkedMs = System.currentTimeMillis();
                    }
                }
                List.copyOf(files.keySet()).forEach(partition -> drop(partition, "the member stops"));
            } catch (Exception e) {
                event("failed", "error", e.toString());
                e.printStackTrace();
                Runtime.getRuntime().halt(3);
            }
        }

        /** False: the consumer was shut down. */
        private boolean readNext(ConsumerIterator<byte[], byte[]> iterator) {
            try {
                if (!iterator.hasNext()) {
                    return false;
                }
                append(iterator.next());
            } catch (ConsumerTimeoutException e) {
                // No record for consumer.timeout.ms: the files must be checked nevertheless.
            }
            return true;
        }

        private void append(MessageAndMetadata<byte[], byte[]> message) {
            Partition partition = new Partition(message.topic(), message.partition());
            if (message.offset() < committed.getOrDefault(partition, -1L)) {
                return;  // A rebalance during the upload made the consumer begin at the old offset again.
            }
            if (message.offset() != lastSeen.getOrDefault(partition, -2L) + 1) {
                drop(partition, "a rebalance");
            }
            lastSeen.put(partition, message.offset());
            OpenFile file = files.get(partition);
            if (file == null) {
                file = new OpenFile(new TreeMap<>(), System.currentTimeMillis());
                files.put(partition, file);
                partitionEvent("file_opened", partition);
            }
            file.records.put(message.offset(), new String(message.message(), StandardCharsets.UTF_8).trim());
        }

        private void check(Partition partition) throws Exception {
            OpenFile file = files.get(partition);
            if (stopping || System.currentTimeMillis() - file.openedMs < fileAgeMs) {
                return;
            }
            long stored = readOffset(partition).offset;
            Long before = committed.put(partition, stored);
            if (before == null ? stored == -1 : before == stored) {
                upload(partition, file);
            } else if (stored > file.records.lastKey()) {
                drop(partition, "the stored offset is after it");
            } else {
                file.records.headMap(stored).clear();
            }
        }

        private void upload(Partition partition, OpenFile file) throws Exception {
            String lock = "/secor/locks/" + partition.topic + "/" + partition.number;
            lock(lock);
            try {
                Stored stored = readOffset(partition);
                if (stored.offset != committed.get(partition)) {
                    return;  // The next check decides again.
                }
                long first = file.records.firstKey();
                long last = file.records.lastKey();
                partitionEvent("upload_began", partition, "first", first, "last", last, "version", stored.version);
                copy(partition, file, first, last);
                files.remove(partition);
                committed.put(partition, last + 1);
                int version = writeOffset(partition, last + 1);
                partitionEvent("upload_ended", partition, "first", first, "last", last, "version", version);
            } finally {
                zookeeper.delete(lock, -1);
            }
        }

        private void copy(Partition partition, OpenFile file, long first, long last) throws Exception {
            Path folder = target.resolve(partition.topic).resolve(String.valueOf(partition.number));
            Files.createDirectories(folder);
            String name = String.format("%020d-%020d.%s.tsv", first, last, member);
            Path part = folder.resolve(name + ".part");
            try (Writer writer = Files.newBufferedWriter(part)) {
                for (Map.Entry<Long, String> each : file.records.entrySet()) {
                    writer.write(each.getKey() + "\t" + each.getValue() + "\n");
                }
            }
            Thread.sleep(uploadMs);  // As slow as the upload to an object store.
            Files.move(part, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE);
        }

        private void drop(Partition partition, String why) {
            OpenFile file = files.remove(partition);
            if (file != null) {
                partitionEvent("file_dropped", partition, "first", file.records.firstKey(),
                    "last", file.records.lastKey(), "why", why);
            }
        }
    }

    // --- ZooKeeper ---

    private Stored readOffset(Partition partition) throws KeeperException, InterruptedException {
        Stat stat = new Stat();
        try {
            byte[] data = zookeeper.getData(offsetPath(partition), false, stat);
            return new Stored(Long.parseLong(new String(data, StandardCharsets.UTF_8)), stat.getVersion());
        } catch (KeeperException.NoNodeException e) {
            return new Stored(-1, -1);
        }
    }

    /** Writes the offset over any other; returns the version that this write made. */
    private int writeOffset(Partition partition, long offset) throws KeeperException, InterruptedException {
        byte[] data = Long.toString(offset).getBytes(StandardCharsets.UTF_8);
        while (true) {
            try {
                return zookeeper.setData(offsetPath(partition), data, -1).getVersion();
            } catch (KeeperException.NoNodeException e) {
                if (create(offsetPath(partition), data, CreateMode.PERSISTENT)) {
                    return 0;
                }
            }
        }
    }

    private String offsetPath(Partition partition) {
        return "/consumers/" + group + "/offsets/" + partition.topic + "/" + partition.number;
    }

    private void lock(String path) throws KeeperException, InterruptedException {
        while (!create(path, new byte[0], CreateMode.EPHEMERAL)) {
            Thread.sleep(LOCK_RETRY_MS);
        }
    }

    /** Creates a node, and those above it; false: it exists. */
    private boolean create(String path, byte[] data, CreateMode mode) throws KeeperException, InterruptedException {
        for (int slash = path.indexOf('/', 1); slash > 0; slash = path.indexOf('/', slash + 1)) {
            try {
                zookeeper.create(path.substring(0, slash), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            } catch (KeeperException.NodeExistsException e) {
                // It needs to be created once.
            }
        }
        try {
            zookeeper.create(path, data, Ids.OPEN_ACL_UNSAFE, mode);
            return true;
        } catch (KeeperException.NodeExistsException e) {
            return false;
        }
    }

    // --- events ---

    private static void partitionEvent(String name, Partition partition, Object... pairs) {
        List<Object> all = new ArrayList<>(List.of("topic", partition.topic, "partition", partition.number));
        all.addAll(List.of(pairs));
        event(name, all.toArray());
    }

    private static synchronized void event(String name, Object... pairs) {
        StringBuilder line = new StringBuilder("{\"event\":\"" + name + "\",\"t\":" + System.currentTimeMillis());
        for (int i = 0; i < pairs.length; i += 2) {
            Object value = pairs[i + 1];
            line.append(",\"").append(pairs[i]).append("\":");
            line.append(value instanceof Number ? value : "\"" + escaped(value.toString()) + "\"");
        }
        System.out.println(line.append("}"));
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("[\\x00-\\x1f]", " ");
    }

    /** The process that started this one has ended. */
    private static void haltAtEndOfInput() {
        try {
            while (System.in.read() >= 0) {
                // No data are sent: only the end of the input counts.
            }
        } catch (IOException e) {
            // An error of the input counts as its end.
        }
        Runtime.getRuntime().halt(137);
    }
}
