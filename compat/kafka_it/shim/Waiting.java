package org.apache.kafka.common.test.junit;

import org.apache.kafka.common.KafkaFuture;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Bounded waits: for a condition, and for the answer of an Admin client.
 *
 * <p>Nothing here waits without a limit, so a broker that hangs fails one test and not the run.
 */
final class Waiting {
    static final long CLUSTER_CHANGE_MILLIS_MAX = 60_000;
    private static final long CALL_SECONDS_MAX = 20;
    private static final long POLL_MILLIS = 50;

    private Waiting() {
    }

    /** Poll until the condition holds; an exception of the condition counts as not yet. */
    static void until(Supplier<Boolean> condition, long millisMax, String description) throws InterruptedException {
        long end = System.currentTimeMillis() + millisMax;
        RuntimeException last = null;
        while (System.currentTimeMillis() < end) {
            try {
                if (condition.get()) {
                    return;
                }
            } catch (RuntimeException error) {
                last = error;
            }
            Thread.sleep(POLL_MILLIS);
        }
        throw new AssertionError("condition not met in " + millisMax + " ms: " + description, last);
    }

    static <T> T get(KafkaFuture<T> future) {
        try {
            return future.get(CALL_SECONDS_MAX, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            throw new IllegalStateException(error.getCause());
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Run an action that may fail: a later attempt, or the test itself, shows the failure. */
    static void attempt(Runnable action) {
        try {
            action.run();
        } catch (RuntimeException error) {
            // Ignored on purpose: see above.
        }
    }
}
