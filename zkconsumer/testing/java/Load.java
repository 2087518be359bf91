import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/**
 * Produces on command, with the Java producer of the release in the class path.
 *
 * One argument, a properties file with producer settings.  Commands on standard input, one a line, each with an id that
 * the answer repeats:
 *   produce ID TOPIC PARTITION COUNT SIZE CODEC        values "topic-partition-sequence", filled up to SIZE bytes
 *   values  ID TOPIC PARTITION CODEC RECORD,... [NAME] KEY:VALUE or KEY:VALUE:TIMESTAMP:HEADERS, see below; in the
 *                                                      transaction of that name
 *   keyed   ID TOPIC CODEC KEY:VALUE,...               as values; the producer's partitioner selects each partition
 *   rate    ID TOPIC PARTITIONS PER_SECOND SIZE CODEC  continues until "halt"; acknowledged ranges every 50 ms
 *   halt    ID                                         waits until everything sent is acknowledged
 *   create  ID TOPIC PARTITIONS REPLICAS               through the admin client (from 0.11 on), for KRaft brokers
 *   grow    ID TOPIC PARTITIONS                        as create: up to so many partitions
 *   begin   ID NAME CODEC                              a transaction (from 0.11 on); several names are several producers
 *   commit  ID NAME                                    ends it
 *   abort   ID NAME                                    ends it: readers with read_committed do not receive its records
 *
 * Keys, values, and names and values of headers are base64; "~" is null.  TIMESTAMP is in ms, "-" for the producer's own
 * (from 0.10 on).  HEADERS: NAME;VALUE;NAME;VALUE... or nothing (from 0.11 on).
 *
 * At the end of standard input the process that started this has ended: the JVM halts.
 */
public final class Load {
    private final Lines lines = new Lines();
    private final Properties settings;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, KafkaProducer<byte[], byte[]>> transactions = new HashMap<>();
    private final Map<String, Long> sequences = new HashMap<>();
    private final List<Rate> rates = new ArrayList<>();

    private Load(Properties settings) {
        this.settings = settings;
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (InputStream in = new FileInputStream(args[0])) {
            settings.load(in);
        }
        new Load(settings).obey();
    }

    private void obey() throws Exception {
        lines.event("started");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("stop")) {
                break;
            }
            try {
                obey(words);
            } catch (Exception e) {
                Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
                lines.event("failed", "id", words.length > 1 ? words[1] : null, "error", cause.toString());
                e.printStackTrace();
            }
        }
        lines.event("stopped");
        lines.close();
        // A producer's close may wait for a broker that is down.
        Runtime.getRuntime().halt(0);
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "produce":
                produce(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]),
                    Integer.parseInt(words[5]), words[6]);
                return;
            case "values":
                values(words[1], words[2], Integer.parseInt(words[3]), words[5],
                    words.length > 6 ? transactions.get(words[6]) : producer(words[4]));
                return;
            case "keyed":
                keyed(words[1], words[2], words[3], words[4]);
                return;
            case "rate":
                Rate rate = new Rate(words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]),
                    Integer.parseInt(words[5]), words[6]);
                rates.add(rate);
                rate.start();
                lines.event("running", "id", words[1]);
                return;
            case "halt":
                for (Rate each : rates) {
                    each.halt();
                }
                rates.clear();
                lines.event("halted", "id", words[1]);
                return;
            case "create":
                create(words[2], Integer.parseInt(words[3]), Short.parseShort(words[4]));
                lines.event("created", "id", words[1]);
                return;
            case "grow":
                grow(words[2], Integer.parseInt(words[3]));
                lines.event("grown", "id", words[1]);
                return;
            case "begin":
                begin(words[2], words[3]);
                lines.event("begun", "id", words[1]);
                return;
            case "commit":
            case "abort":
                call(transactions.get(words[2]), words[0] + "Transaction");
                lines.event("ended", "id", words[1]);
                return;
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private void produce(String id, String topic, int partition, int count, int size, String codec) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(codec);
        List<Future<RecordMetadata>> sent = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            sent.add(producer.send(new ProducerRecord<byte[], byte[]>(topic, partition, null, next(topic, partition, size))));
        }
        answer(id, topic, partition, sent);
    }

    private void values(String id, String topic, int partition, String records,
            KafkaProducer<byte[], byte[]> producer) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String each : records.split(",")) {
            sent.add(producer.send(record(topic, partition, each.split(":", -1))));
        }
        answer(id, topic, partition, sent);
    }

    /** Through reflection: the record of 0.8.2 has no timestamp, and that of 0.10 no headers. */
    @SuppressWarnings("unchecked")
    private static ProducerRecord<byte[], byte[]> record(String topic, int partition, String[] fields)
            throws Exception {
        byte[] key = bytes(fields[0]);
        byte[] value = bytes(fields[1]);
        if (fields.length == 2) {
            return new ProducerRecord<byte[], byte[]>(topic, partition, key, value);
        }
        Long timestamp = fields[2].equals("-") ? null : Long.valueOf(fields[2]);
        if (fields[3].isEmpty()) {
            return ProducerRecord.class
                .getConstructor(String.class, Integer.class, Long.class, Object.class, Object.class)
                .newInstance(topic, partition, timestamp, key, value);
        }
        Class<?> header = Class.forName("org.apache.kafka.common.header.internals.RecordHeader");
        List<Object> headers = new ArrayList<>();
        String[] words = fields[3].split(";", -1);
        for (int i = 0; i < words.length; i += 2) {
            String name = new String(bytes(words[i]), StandardCharsets.UTF_8);
            headers.add(header.getConstructor(String.class, byte[].class).newInstance(name, bytes(words[i + 1])));
        }
        return ProducerRecord.class
            .getConstructor(String.class, Integer.class, Long.class, Object.class, Object.class, Iterable.class)
            .newInstance(topic, partition, timestamp, key, value, headers);
    }

    private void begin(String name, String codec) throws Exception {
        if (!transactions.containsKey(name)) {
            Properties own = new Properties();
            own.setProperty("transactional.id", name);
            KafkaProducer<byte[], byte[]> producer = made(codec, own);
            call(producer, "initTransactions");
            transactions.put(name, producer);
        }
        call(transactions.get(name), "beginTransaction");
    }

    /** Through reflection: producers before 0.11 have no transactions. */
    private static void call(KafkaProducer<byte[], byte[]> producer, String method) throws Exception {
        KafkaProducer.class.getMethod(method).invoke(producer);
    }

    private void keyed(String id, String topic, String codec, String pairs) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(codec);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String pair : pairs.split(",")) {
            int colon = pair.indexOf(':');
            byte[] key = bytes(pair.substring(0, colon));
            byte[] value = bytes(pair.substring(colon + 1));
            sent.add(producer.send(new ProducerRecord<byte[], byte[]>(topic, key, value)));
        }
        Map<Integer, List<Long>> offsets = new TreeMap<>();
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata at = each.get();
            offsets.computeIfAbsent(at.partition(), unused -> new ArrayList<>()).add(at.offset());
        }
        for (Map.Entry<Integer, List<Long>> each : offsets.entrySet()) {
            ranges(topic, each.getKey(), each.getValue());
        }
        lines.event("sent", "id", id, "count", sent.size());
    }

    /** An event for each range without a gap; another producer may have written in between. */
    private void ranges(String topic, int partition, List<Long> offsets) {
        long first = offsets.get(0);
        for (int i = 0; i < offsets.size(); i++) {
            long last = offsets.get(i);
            if (i + 1 == offsets.size() || offsets.get(i + 1) != last + 1) {
                lines.event("produced", "topic", topic, "partition", partition, "first", first, "last", last,
                    "count", last - first + 1);
                first = i + 1 == offsets.size() ? first : offsets.get(i + 1);
            }
        }
    }

    private void answer(String id, String topic, int partition, List<Future<RecordMetadata>> sent) throws Exception {
        long first = -1;
        long last = -1;
        for (Future<RecordMetadata> each : sent) {
            last = each.get().offset();
            first = first < 0 ? last : first;
        }
        lines.event("produced", "id", id, "topic", topic, "partition", partition, "first", first, "last", last,
            "count", sent.size());
    }

    private static byte[] bytes(String base64) {
        return base64.equals("~") ? null : Base64.getDecoder().decode(base64);
    }

    private synchronized byte[] next(String topic, int partition, int size) {
        String start = topic + "-" + partition + "-";
        long sequence = sequences.merge(start, 1L, Long::sum) - 1;
        byte[] text = (start + sequence).getBytes(StandardCharsets.US_ASCII);
        if (size <= text.length + 1) {
            return text;
        }
        byte[] value = Arrays.copyOf(text, size);
        Arrays.fill(value, text.length, size, (byte) ' ');
        return value;
    }

    private synchronized KafkaProducer<byte[], byte[]> producer(String codec) {
        return producers.computeIfAbsent(codec, name -> made(name, new Properties()));
    }

    private KafkaProducer<byte[], byte[]> made(String codec, Properties more) {
        Properties own = new Properties();
        own.putAll(settings);
        own.putAll(more);
        own.setProperty("compression.type", codec);
        own.setProperty("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        own.setProperty("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        return new KafkaProducer<byte[], byte[]>(own);
    }

    /** Through reflection: the producer of 0.8.2 comes without an admin client. */
    private void create(String topic, int partitions, short replicas) throws Exception {
        Class<?> client = Class.forName("org.apache.kafka.clients.admin.AdminClient");
        Object topics = Class.forName("org.apache.kafka.clients.admin.NewTopic")
            .getConstructor(String.class, int.class, short.class).newInstance(topic, partitions, replicas);
        try (AutoCloseable admin = (AutoCloseable) client.getMethod("create", Properties.class).invoke(null, settings)) {
            Object result = client.getMethod("createTopics", java.util.Collection.class)
                .invoke(admin, Arrays.asList(topics));
            ((Future<?>) result.getClass().getMethod("all").invoke(result)).get();
        }
    }

    private void grow(String topic, int partitions) throws Exception {
        Class<?> client = Class.forName("org.apache.kafka.clients.admin.AdminClient");
        Object upTo = Class.forName("org.apache.kafka.clients.admin.NewPartitions")
            .getMethod("increaseTo", int.class).invoke(null, partitions);
        try (AutoCloseable admin = (AutoCloseable) client.getMethod("create", Properties.class).invoke(null, settings)) {
            Object result = client.getMethod("createPartitions", Map.class)
                .invoke(admin, java.util.Collections.singletonMap(topic, upTo));
            ((Future<?>) result.getClass().getMethod("all").invoke(result)).get();
        }
    }

    /** A constant rate of messages, round-robin over the partitions; reports what the brokers acknowledged. */
    private final class Rate extends Thread {
        private static final int TICK_MS = 10;
        private static final int SEND_ATTEMPTS = 100;
        private static final int REPORT_MS = 50;

        private final String topic;
        private final int perSecond;
        private final int size;
        private final KafkaProducer<byte[], byte[]> producer;
        private final long[] first;
        private final long[] last;
        private long sent;
        private long answered;
        private volatile boolean halting;

        Rate(String topic, int partitions, int perSecond, int size, String codec) {
            super("rate-" + topic);
            this.topic = topic;
            this.perSecond = perSecond;
            this.size = size;
            this.producer = producer(codec);
            this.first = new long[partitions];
            this.last = new long[partitions];
            Arrays.fill(first, -1);
            setDaemon(true);
        }

        @Override
        public void run() {
            long begin = System.nanoTime();
            long reportAt = begin;
            try {
                while (!halting) {
                    long now = System.nanoTime();
                    long due = (now - begin) * perSecond / 1_000_000_000L;
                    while (sent < due && !halting) {
                        send((int) (sent % first.length));
                    }
                    if (now >= reportAt) {
                        report();
                        reportAt = now + REPORT_MS * 1_000_000L;
                    }
                    Thread.sleep(TICK_MS);
                }
            } catch (InterruptedException e) {
                // Only the end of the JVM interrupts.
            }
        }

        void halt() throws InterruptedException {
            halting = true;
            join();
            synchronized (this) {
                while (answered < sent) {
                    wait();
                }
            }
            report();
        }

        private void send(int partition) throws InterruptedException {
            sent++;
            byte[] value = next(topic, partition, size);
            for (int attempt = 1; ; attempt++) {
                try {
                    producer.send(new ProducerRecord<byte[], byte[]>(topic, partition, null, value),
                        (metadata, error) -> answered(partition, metadata, error));
                    return;
                } catch (IllegalStateException error) {
                    // The producer of 0.9 appends to a batch that it has just taken back from its buffer ("Memory records
                    // is not writable"); the record is in no batch then.
                    if (attempt == SEND_ATTEMPTS) {
                        throw error;
                    }
                    Thread.sleep(TICK_MS);
                }
            }
        }

        private synchronized void answered(int partition, RecordMetadata metadata, Exception error) {
            answered++;
            if (error != null) {
                lines.event("send_failed", "topic", topic, "partition", partition, "error", error.toString());
            } else {
                if (first[partition] >= 0 && metadata.offset() != last[partition] + 1) {
                    report(partition);
                }
                first[partition] = first[partition] < 0 ? metadata.offset() : first[partition];
                last[partition] = metadata.offset();
            }
            notifyAll();
        }

        private synchronized void report() {
            for (int partition = 0; partition < first.length; partition++) {
                report(partition);
            }
        }

        private void report(int partition) {
            if (first[partition] < 0) {
                return;
            }
            lines.event("produced", "topic", topic, "partition", partition, "first", first[partition],
                "last", last[partition], "count", last[partition] - first[partition] + 1);
            first[partition] = -1;
        }
    }
}
