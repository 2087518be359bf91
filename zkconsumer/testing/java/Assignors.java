import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Computes assignments with the assignors of Kafka's own client.
 *
 * Standard input: a line a group, "assignor TOPICS RACKS MEMBER MEMBER ...", separated by one blank, "-" for nothing:
 * TOPICS "topic:count,...", RACKS "topic:partition=rack+rack,...", MEMBER "id;topics,...;user data in hex;topic:partition,...;generation;rack;instance".
 * Standard output, line by line: "id=topic:partition,... id=..." by id, or "broken" and an exception.  The answer to a line "userdata ASSIGNOR topic:partition,... generation" is the
 * user data, in hex, of a member with this assignment.
 */
public final class Assignors {
    private Assignors() {}

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            out.println(words[0].equals("userdata") ? userData(words) : answer(words));
        }
        out.flush();
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range":
                return new RangeAssignor();
            case "roundrobin":
                return new RoundRobinAssignor();
            case "sticky":
                return new StickyAssignor();
            default:
                return new CooperativeStickyAssignor();
        }
    }

    private static String userData(String[] words) {
        ConsumerPartitionAssignor assignor = assignor(words[1]);
        int generation = Integer.parseInt(words[3]);
        assignor.onAssignment(new Assignment(partitions(words[2])), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
        ByteBuffer data = assignor.subscriptionUserData(Collections.singleton("t"));
        return HexFormat.of().formatHex(data.array(), data.position(), data.limit());
    }

    private static String answer(String[] words) {
        Map<String, Subscription> members = new HashMap<>();
        for (int i = 3; i < words.length; i++) {
            String[] parts = words[i].split(";", -1);
            ByteBuffer data = parts[2].equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(parts[2]));
            Optional<String> rack = parts[5].equals("-") ? Optional.empty() : Optional.of(parts[5]);
            Subscription subscription = new Subscription(list(parts[1]), data, partitions(parts[3]), Integer.parseInt(parts[4]), rack);
            subscription.setGroupInstanceId(parts[6].equals("-") ? Optional.empty() : Optional.of(parts[6]));
            members.put(parts[0], subscription);
        }
        try {
            GroupSubscription group = new GroupSubscription(members);
            Map<String, Assignment> done = new TreeMap<>(assignor(words[0]).assign(cluster(words[1], words[2]), group).groupAssignment());
            List<String> said = new ArrayList<>();
            done.forEach((member, share) -> said.add(member + "=" + told(share.partitions())));
            return String.join(" ", said);
        } catch (RuntimeException e) {
            return "broken " + e.getClass().getSimpleName();
        }
    }

    private static Cluster cluster(String topics, String racks) {
        Map<String, Node[]> replicas = new HashMap<>();
        Map<String, Node> nodes = new LinkedHashMap<>();
        for (String each : list(racks)) {
            String[] parts = each.split("=", -1);
            List<Node> here = new ArrayList<>();
            for (String rack : parts[1].split("\\+")) {
                if (!rack.isEmpty()) {
                    here.add(nodes.computeIfAbsent(rack, r -> new Node(nodes.size(), "localhost", 9092, r)));
                }
            }
            replicas.put(parts[0], here.toArray(new Node[0]));
        }
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String each : list(topics)) {
            String[] parts = each.split(":", -1);
            for (int i = 0; i < Integer.parseInt(parts[1]); i++) {
                Node[] here = replicas.getOrDefault(parts[0] + ":" + i, new Node[0]);
                partitions.add(new PartitionInfo(parts[0], i, here.length == 0 ? null : here[0], here, here));
            }
        }
        return new Cluster("c", nodes.values(), partitions, Collections.emptySet(), Collections.emptySet());
    }

    private static List<String> list(String text) {
        return text.equals("-") || text.isEmpty() ? Collections.emptyList() : Arrays.asList(text.split(","));
    }

    private static List<TopicPartition> partitions(String text) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (String each : list(text)) {
            String[] parts = each.split(":", -1);
            partitions.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
        }
        return partitions;
    }

    private static String told(List<TopicPartition> partitions) {
        List<String> said = new ArrayList<>();
        for (TopicPartition tp : partitions) {
            said.add(tp.topic() + ":" + tp.partition());
        }
        return said.isEmpty() ? "-" : String.join(",", said);
    }
}
