import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads messages with Kafka's own classes and writes them again.
 *
 * Standard input: a line a message, "request|response KEY VERSION HEX" or "stored CLASS VERSION HEX" (the body alone, without
 * headers and version); "-" means no bytes.  Standard output, line by line: the bytes as Kafka writes them, or
 * "unread N" (bytes after the last field) or "broken" and an exception.
 */
public final class Recode {
    private Recode() {}

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ")));
        }
        out.flush();
    }

    private static String answer(String[] words) {
        try {
            short version = Short.parseShort(words[2]);
            Message message = made(words[0], words[1]);
            ByteBuffer data = ByteBuffer.wrap(words[3].equals("-") ? new byte[0] : HexFormat.of().parseHex(words[3]));
            message.read(new ByteBufferAccessor(data), version);
            if (data.hasRemaining()) {
                return "unread " + data.remaining();
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(written), cache, version);
            return written.capacity() == 0 ? "-" : HexFormat.of().formatHex(written.array());
        } catch (Exception error) {
            return "broken " + error;
        }
    }

    private static Message made(String what, String name) throws ReflectiveOperationException {
        if (what.equals("stored")) {
            return (Message) Class.forName(name).getConstructor().newInstance();
        }
        ApiKeys api = ApiKeys.forId(Integer.parseInt(name));
        ApiMessage message = what.equals("request") ? api.messageType.newRequest() : api.messageType.newResponse();
        return message;
    }
}
