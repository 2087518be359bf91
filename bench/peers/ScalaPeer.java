import java.util.Collections;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.KafkaStream;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Scala consumer as a peer of bench/streams.py: one stream of a group in ZooKeeper with automatic commits. */
public final class ScalaPeer extends BenchPeer {
    public static void main(String[] args) throws Exception {
        new ScalaPeer().serve(args[0]);
    }

    @Override
    String version() {
        return AppInfoParser.getVersion();
    }

    @Override
    void consume(Sink sink) {
        Properties own = new Properties();
        own.putAll(settings);
        own.setProperty("group.id", sink.group);
        own.setProperty("auto.offset.reset", sink.isAtEnd() ? "largest" : "smallest");
        own.setProperty("consumer.timeout.ms", Long.toString(sink.timeoutMs));
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(own));
        try {
            KafkaStream<byte[], byte[]> stream =
                connector.createMessageStreams(Collections.singletonMap(sink.topic, 1)).get(sink.topic).get(0);
            ConsumerIterator<byte[], byte[]> iterator = stream.iterator();
            while (iterator.hasNext()) {
                MessageAndMetadata<byte[], byte[]> message = iterator.next();
                if (sink.take(message.key(), message.message(), message.offset())) {
                    return;
                }
            }
            throw new IllegalStateException("the stream ended");
        } finally {
            connector.shutdown();
        }
    }
}
