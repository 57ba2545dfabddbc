import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ExecutionException;

/**
 * Runs checks, prints one line for each, and counts them.
 *
 * <p>A check that throws fails; the next check runs anyway. It does NOT limit the time of a check: the
 * timeouts of the clients do.
 */
final class Checks {
    private static final int DETAIL_CHARACTERS_MAX = 110;

    private final List<String> failures = new ArrayList<>();
    private int passed;

    /** The body of a check; its result is printed as a detail. */
    interface Body {
        Object run() throws Exception;
    }

    /** A check that prints no detail. */
    interface Action {
        void run() throws Exception;
    }

    int failed() {
        return failures.size();
    }

    void check(String name, Action action) {
        checkResult(name, () -> {
            action.run();
            return null;
        });
    }

    void checkResult(String name, Body body) {
        long startNanos = System.nanoTime();
        try {
            Object result = body.run();
            passed++;
            print("PASS", name, startNanos, result == null ? "" : shorten(result));
        } catch (Throwable error) {
            Throwable cause = causeOf(error);
            failures.add(name);
            String detail = cause.getClass().getSimpleName() + ": " + shorten(cause.getMessage());
            print("FAIL", name, startNanos, detail);
        }
    }

    /** A check that passes only if its body throws this exception. */
    void checkError(String name, Class<? extends Throwable> expected, Action action) {
        checkResult(name, () -> expectError(expected, action));
    }

    void printTotal() {
        System.out.println("TOTAL pass=" + passed + " fail=" + failed() + " " + String.join(" ", failures));
    }

    /** Return a note if the action throws this exception; throw if it throws another or none. */
    static String expectError(Class<? extends Throwable> expected, Action action) {
        try {
            action.run();
        } catch (Throwable error) {
            Throwable cause = causeOf(error);
            if (expected.isInstance(cause)) {
                return "(" + expected.getSimpleName() + " as expected)";
            }
            throw new AssertionError("expected " + expected.getSimpleName() + ", got " + cause, cause);
        }
        throw new AssertionError("expected " + expected.getSimpleName() + ", got no error");
    }

    static void assertEqual(Object expected, Object actual) {
        if (!Objects.equals(expected, actual)) {
            throw new AssertionError("expected " + expected + ", got " + actual);
        }
    }

    private static Throwable causeOf(Throwable error) {
        return error instanceof ExecutionException ? error.getCause() : error;
    }

    private static void print(String word, String name, long startNanos, String detail) {
        long millis = (System.nanoTime() - startNanos) / 1_000_000;
        System.out.printf("%s %-34s %5d ms %s%n", word, name, millis, detail);
    }

    private static String shorten(Object value) {
        String text = String.valueOf(value).replace('\n', ' ');
        boolean isLong = text.length() > DETAIL_CHARACTERS_MAX;
        return isLong ? text.substring(0, DETAIL_CHARACTERS_MAX) + "…" : text;
    }
}
