import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.OutputStreamWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.controller.AclControlManager;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Asks Apache Kafka's own authorizer, filters and checks: lines in, lines out, fields divided by tabs.
 *
 * A rule has seven fields: type, name, pattern type, principal, host, operation, permission; the four kinds are
 * numbers as on the wire. A filter has the same fields, and ~ for null.
 *
 *   C super-users default          begin a set of rules: users divided by ;, and true or false
 *   R rule                         one rule of the set
 *   Q kind name address operation type resource    ask whether a client may
 *   T kind name address operation type             ask whether a client may on some resource of the type
 *   E                              print one character for each question: A(llowed), D(enied), or the exception:
 *                                  I(llegalArgumentException), S(tringIndexOutOfBoundsException)
 *   F filter rule                  print 1 if the filter matches the rule, else 0
 *   V rule                         print Kafka's message about a new rule, or nothing
 *   W filter                       print Kafka's message about a filter of DeleteAcls, or nothing
 *   H address                      print the text of an address
 */
public final class AuthorizerOracle {
    private static final String NULL = "~";

    private final PrintWriter out =
        new PrintWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8), false);
    private final Map<Uuid, StandardAcl> rules = new HashMap<>();
    private final Map<String, InetAddress> addresses = new HashMap<>();
    private final StringBuilder answers = new StringBuilder();
    private String superUsers = "";
    private String isOpen = "false";
    private final PluginMetricsImpl metrics = new PluginMetricsImpl(new Metrics(), Map.of());
    private final StandardAuthorizer authorizer = create();
    private boolean isLoaded;

    public static void main(String[] arguments) throws Exception {
        AuthorizerOracle oracle = new AuthorizerOracle();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            oracle.answer(line.split("\t", -1));
        }
        oracle.out.flush();
    }

    private void answer(String[] words) throws Exception {
        switch (words[0]) {
            case "C" -> begin(words[1], words[2]);
            case "R" -> rules.put(new Uuid(1, rules.size() + 1), StandardAcl.fromAclBinding(binding(words, 1)));
            case "Q" -> answers.append(ask(words, words[6]));
            case "T" -> answers.append(ask(words, null));
            case "E" -> {
                out.println(answers);
                answers.setLength(0);
            }
            case "F" -> out.println(filter(words, 1).matches(binding(words, 8)) ? "1" : "0");
            case "V" -> out.println(message("validateNewAcl", AclBinding.class, () -> binding(words, 1)));
            case "W" -> out.println(message("validateFilter", AclBindingFilter.class, () -> filter(words, 1)));
            case "H" -> out.println(address(words[1]).getHostAddress());
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void begin(String users, String open) {
        superUsers = users;
        isOpen = open;
        rules.clear();
        isLoaded = false;
    }

    private StandardAuthorizer create() {
        StandardAuthorizer created = new StandardAuthorizer();
        created.withPluginMetrics(metrics);
        created.completeInitialLoad();
        return created;
    }

    private StandardAuthorizer loaded() {
        if (!isLoaded) {
            authorizer.configure(Map.of(
                StandardAuthorizer.SUPER_USERS_CONFIG, superUsers,
                StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, isOpen));
            authorizer.loadSnapshot(rules);
            isLoaded = true;
        }
        return authorizer;
    }

    private char ask(String[] words, String name) throws UnknownHostException {
        Client client = new Client(new KafkaPrincipal(words[1], words[2]), address(words[3]));
        AclOperation operation = AclOperation.fromCode(Byte.parseByte(words[4]));
        ResourceType type = ResourceType.fromCode(Byte.parseByte(words[5]));
        AuthorizationResult result;
        try {
            if (name == null) {
                result = loaded().authorizeByResourceType(client, operation, type);
            } else {
                ResourcePattern resource = new ResourcePattern(type, name, PatternType.LITERAL);
                result = loaded().authorize(client, List.of(new Action(operation, resource, 1, false, false))).get(0);
            }
        } catch (IllegalArgumentException error) {
            return 'I';
        } catch (StringIndexOutOfBoundsException error) {
            return 'S';
        }
        return result == AuthorizationResult.ALLOWED ? 'A' : 'D';
    }

    private InetAddress address(String text) throws UnknownHostException {
        InetAddress found = addresses.get(text);
        if (found == null) {
            found = InetAddress.getByName(text);
            addresses.put(text, found);
        }
        return found;
    }

    private static AclBinding binding(String[] words, int first) {
        return new AclBinding(
            new ResourcePattern(
                ResourceType.fromCode(Byte.parseByte(words[first])),
                words[first + 1],
                PatternType.fromCode(Byte.parseByte(words[first + 2]))),
            new AccessControlEntry(
                words[first + 3],
                words[first + 4],
                AclOperation.fromCode(Byte.parseByte(words[first + 5])),
                AclPermissionType.fromCode(Byte.parseByte(words[first + 6]))));
    }

    private static AclBindingFilter filter(String[] words, int first) {
        return new AclBindingFilter(
            new ResourcePatternFilter(
                ResourceType.fromCode(Byte.parseByte(words[first])),
                nullable(words[first + 1]),
                PatternType.fromCode(Byte.parseByte(words[first + 2]))),
            new AccessControlEntryFilter(
                nullable(words[first + 3]),
                nullable(words[first + 4]),
                AclOperation.fromCode(Byte.parseByte(words[first + 5])),
                AclPermissionType.fromCode(Byte.parseByte(words[first + 6]))));
    }

    private static String nullable(String word) {
        return word.equals(NULL) ? null : word;
    }

    private interface Value {
        Object get();
    }

    /** The message of a check of the controller, which is not public, or of the constructor before it. */
    private static String message(String check, Class<?> type, Value value) throws Exception {
        Method method = AclControlManager.class.getDeclaredMethod(check, type);
        method.setAccessible(true);
        try {
            method.invoke(null, value.get());
            return "";
        } catch (InvocationTargetException error) {
            return error.getCause().getMessage();
        } catch (IllegalArgumentException error) {
            return "constructor: " + error.getMessage();
        }
    }

    private record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
