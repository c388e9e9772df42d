import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeReplicaLogDirsResult.ReplicaLogDirInfo;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.protocol.Errors;

/**
 * Kafka's admin client asks for partitions to be moved between data directories, and tells where they are. One line a partition:
 * TOPIC-N, and either the error's name or `CURRENT DIR FUTURE DIR LAG`.
 *
 * java LogDirs.java move BOOTSTRAP BROKER DIR TOPIC PARTITION...
 * java LogDirs.java where BOOTSTRAP BROKER TOPIC PARTITION...
 */
public final class LogDirs {
    public static void main(String[] args) throws Exception {
        boolean moves = args[0].equals("move");
        int topic = moves ? 4 : 3;
        Map<TopicPartitionReplica, String> replicas = new HashMap<>();
        for (int i = topic + 1; i < args.length; i++) {
            replicas.put(new TopicPartitionReplica(args[topic], Integer.parseInt(args[i]), Integer.parseInt(args[2])), moves ? args[3] : "");
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[1]))) {
            if (moves) {
                for (Map.Entry<TopicPartitionReplica, KafkaFuture<Void>> one : admin.alterReplicaLogDirs(replicas).values().entrySet()) {
                    System.out.println(name(one.getKey()) + " " + outcome(one.getValue()));
                }
                return;
            }
            for (Map.Entry<TopicPartitionReplica, ReplicaLogDirInfo> one : admin.describeReplicaLogDirs(replicas.keySet()).all().get().entrySet()) {
                ReplicaLogDirInfo info = one.getValue();
                System.out.printf("%s CURRENT %s FUTURE %s %d%n", name(one.getKey()), info.getCurrentReplicaLogDir(),
                    info.getFutureReplicaLogDir(), info.getFutureReplicaOffsetLag());
            }
        }
    }

    private static String name(TopicPartitionReplica replica) {
        return replica.topic() + "-" + replica.partition();
    }

    private static Errors outcome(KafkaFuture<Void> future) throws InterruptedException {
        try {
            future.get();
            return Errors.NONE;
        } catch (ExecutionException error) {
            return Errors.forException(error.getCause());
        }
    }
}
