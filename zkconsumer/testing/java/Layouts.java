import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

/**
 * Prints the layouts of the messages of a release from Kafka's own classes, for a comparison with our tables.
 *
 * Arguments: the API keys, then the classes of stored messages ("org.apache.kafka...OffsetCommitValue").
 * Standard output, a line a version: "name request|response|stored version: fields", where a field is "name type",
 * "name type?" (may be null), "name @tag type", "name [type]" or "name [{fields}]"; "~" in front of all fields: the version
 * is flexible.  Instead of the fields: "gone" for a version that the release no longer has, "same" for one whose fields
 * are those of the version before.
 */
public final class Layouts {
    private static PrintStream out;

    private Layouts() {}

    public static void main(String[] args) throws Exception {
        out = new PrintStream(System.out, false, "UTF-8");
        for (String word : args) {
            if (word.startsWith("org.")) {
                Class<?> stored = Class.forName(word);
                print(stored.getSimpleName() + " stored", (Schema[]) stored.getField("SCHEMAS").get(null));
            } else {
                ApiKeys api = ApiKeys.forId(Integer.parseInt(word));
                print(api.name + " request", api.messageType.requestSchemas());
                print(api.name + " response", api.messageType.responseSchemas());
            }
        }
        out.flush();
    }

    private static void print(String name, Schema[] versions) {
        String before = null;
        for (int version = 0; version < versions.length; version++) {
            String fields = versions[version] == null ? "gone" : version(versions[version]);
            out.println(name + " " + version + ": " + (fields.equals(before) ? "same" : fields));
            before = fields;
        }
    }

    private static String version(Schema schema) {
        return (isFlexible(schema) ? "~ " : "") + fields(schema);
    }

    private static boolean isFlexible(Schema schema) {
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields) {
                return true;
            }
        }
        return false;
    }

    private static String fields(Schema schema) {
        List<String> words = new ArrayList<>();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields) {
                for (Map.Entry<Integer, Field> tagged : tagged(field.def.type).entrySet()) {
                    words.add(tagged.getValue().name + " @" + tagged.getKey() + " " + type(tagged.getValue().type));
                }
            } else {
                words.add(field.def.name + " " + type(field.def.type));
            }
        }
        return String.join(", ", words);
    }

    /** Releases before 4.0 do not have this method. */
    @SuppressWarnings("unchecked")
    private static Map<Integer, Field> tagged(Type type) {
        try {
            java.lang.reflect.Field fields = TaggedFields.class.getDeclaredField("fields");
            fields.setAccessible(true);
            return (Map<Integer, Field>) fields.get(type);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String type(Type type) {
        String nullable = type.isNullable() ? "?" : "";
        if (type instanceof Schema) {
            return "{" + fields((Schema) type) + "}" + nullable;
        }
        if (type.isArray()) {
            return "[" + type(type.arrayElementType().get()) + "]" + nullable;
        }
        String name = type.toString().toLowerCase().replace("compact_", "").replace("nullable_", "");
        return name + nullable;
    }
}
