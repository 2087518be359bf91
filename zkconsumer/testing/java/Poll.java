import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** KafkaConsumer.poll of every release: poll(long) was removed in 4.0, poll(Duration) was added in 2.0. */
final class Poll {
    private Poll() {}

    @SuppressWarnings("unchecked")
    static ConsumerRecords<byte[], byte[]> of(KafkaConsumer<byte[], byte[]> consumer, long patienceMs) throws Exception {
        try {
            return (ConsumerRecords<byte[], byte[]>) invoked(consumer, patienceMs);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof Exception) {
                throw (Exception) e.getCause();
            }
            throw e;
        }
    }

    private static Object invoked(KafkaConsumer<byte[], byte[]> consumer, long patienceMs) throws Exception {
        Method byDuration;
        try {
            byDuration = KafkaConsumer.class.getMethod("poll", Duration.class);
        } catch (NoSuchMethodException e) {
            return KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, patienceMs);
        }
        return byDuration.invoke(consumer, Duration.ofMillis(patienceMs));
    }
}
