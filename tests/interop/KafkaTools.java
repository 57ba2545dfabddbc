// Runs Apache Kafka's command-line tools one after another in this one JVM, as a user would run them in a shell.
//
// Reads one JSON document for each line: {"tool": class, "arguments": [...], "input": text}. Writes one for each:
// {"code": exit code, "out": text, "err": text}. A start of Java costs a second or two and there are a hundred commands.
// A tool ends by Kafka's Exit class, which is told to throw here; what it would do at the end of its process is done
// when its main method is left. The first exit counts: a tool may catch the throw of its own exit and exit again.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

import static java.nio.charset.StandardCharsets.UTF_8;

public class KafkaTools {
    private static final class Ended extends Error {
        Ended() {
            super("the tool ended", null, false, false);
        }
    }

    private static final List<Runnable> atEnd = new ArrayList<>();
    private static Integer exitCode;

    private static void end(int code) {
        if (exitCode == null)
            exitCode = code;
        throw new Ended();
    }

    private static void run(String tool, String[] arguments) throws ReflectiveOperationException {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                // What Java itself does with what leaves a main method.
                System.err.print("Exception in thread \"main\" ");
                error.getCause().printStackTrace();
                exitCode = 1;
            }
        }
        for (Runnable last : List.copyOf(atEnd))
            last.run();
    }

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        ObjectMapper json = new ObjectMapper();
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, last) -> atEnd.add(last));
        String line;
        while ((line = questions.readLine()) != null) {
            JsonNode question = json.readTree(line);
            String[] arguments = json.convertValue(question.get("arguments"), String[].class);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            exitCode = null;
            atEnd.clear();
            System.setIn(new ByteArrayInputStream(question.get("input").asText().getBytes(UTF_8)));
            System.setOut(new PrintStream(out, true, UTF_8));
            System.setErr(new PrintStream(err, true, UTF_8));
            // Never set back: what a thread of a tool that has ended still prints is nobody's answer.
            run(question.get("tool").asText(), arguments);
            ObjectNode answer = json.createObjectNode();
            answer.put("code", exitCode == null ? 0 : exitCode);
            answer.put("out", out.toString(UTF_8));
            answer.put("err", err.toString(UTF_8));
            answers.println(json.writeValueAsString(answer));
            answers.flush();
        }
    }
}
