import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.HexFormat;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Answers questions about principals of certificates with Java's and Apache Kafka's own classes.
 *
 * One question for each line of the standard input, one answer for each line of the output. All
 * texts and certificates are hexadecimal, texts as UTF-8:
 *
 *   name CERTIFICATE   X500Principal.getName() of the subject:  ok NAME
 *   rules RULES        whether SslPrincipalMapper accepts the rules:  ok | refused REASON
 *   map RULES NAME     SslPrincipalMapper.getName:  ok NAME | none | failed REASON
 *
 * A certificate that Java cannot read is "failed REASON".
 */
public final class CertificatePrincipals {
    private static final HexFormat HEX = HexFormat.of();

    private CertificatePrincipals() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.println(answer(factory, line.split(" ", -1)));
        }
        output.flush();
    }

    private static String answer(CertificateFactory factory, String[] words) {
        try {
            switch (words[0]) {
                case "name":
                    ByteArrayInputStream encoded = new ByteArrayInputStream(HEX.parseHex(words[1]));
                    X509Certificate certificate = (X509Certificate) factory.generateCertificate(encoded);
                    return "ok " + hexadecimal(certificate.getSubjectX500Principal().getName());
                case "rules":
                    return accepts(text(words[1]));
                case "map":
                    return mapped(text(words[1]), text(words[2]));
                default:
                    throw new IllegalArgumentException(words[0]);
            }
        } catch (Exception | StackOverflowError problem) {
            return "failed " + hexadecimal(problem.toString());
        }
    }

    private static String accepts(String rules) {
        try {
            SslPrincipalMapper.fromRules(rules);
            return "ok";
        } catch (RuntimeException problem) {
            return "refused " + hexadecimal(problem.toString());
        }
    }

    private static String mapped(String rules, String name) throws Exception {
        SslPrincipalMapper mapper = SslPrincipalMapper.fromRules(rules);
        try {
            return "ok " + hexadecimal(mapper.getName(name));
        } catch (SslPrincipalMapper.NoMatchingRule problem) {
            return "none";
        }
    }

    private static String text(String hexadecimal) {
        return new String(HEX.parseHex(hexadecimal), StandardCharsets.UTF_8);
    }

    private static String hexadecimal(String text) {
        return HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
