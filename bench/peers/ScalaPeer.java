import java.util.Collections;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.KafkaStream;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/** The Scala consumer as a peer of bench/streams.py: one stream of a group in ZooKeeper with automatic commits. */
public final class ScalaPeer extends BenchPeer {
    public static void main(String[] args) throws Exception {
        new ScalaPeer().serve(args[0]);
    }

    @Override
    void consume(Sink sink) {
        Properties own = settingsOf(sink, "largest", "smallest");
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
