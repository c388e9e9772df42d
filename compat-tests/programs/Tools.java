import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Apache Kafka's command line tools, one after another in this JVM, since each of their own takes seconds to start. A line of stdin is a
 * JSON array, the tool's class and its arguments; a line of stdout is {"exit": its exit code, "stdout": …, "stderr": …}.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What a tool throws instead of ending this process. */
    private static final class Ended extends Error {
        private final int status;

        private Ended(int status) {
            super("exit " + status, null, false, false);
            this.status = status;
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(run(JSON.readValue(line, String[].class))));
            out.flush();
        }
    }

    private static ObjectNode run(String[] command) throws Exception {
        ByteArrayOutputStream stdout = new ByteArrayOutputStream();
        ByteArrayOutputStream stderr = new ByteArrayOutputStream();
        System.setOut(new PrintStream(stdout, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(stderr, true, StandardCharsets.UTF_8));
        int exit = 0;
        try {
            String[] args = Arrays.copyOfRange(command, 1, command.length);
            Class.forName(command[0]).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Ended ended) {
                exit = ended.status;
            } else {
                // As an uncaught exception ends a JVM.
                exit = 1;
                thrown.getCause().printStackTrace();
            }
        }
        ObjectNode said = JSON.createObjectNode();
        said.put("exit", exit);
        said.put("stdout", stdout.toString(StandardCharsets.UTF_8));
        said.put("stderr", stderr.toString(StandardCharsets.UTF_8));
        return said;
    }
}
