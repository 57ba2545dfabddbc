package org.apache.kafka.common.test.junit;

import org.mockito.MockSettings;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;

import java.util.Map;
import java.util.function.Function;

/**
 * Objects of Kafka's server classes with only the methods that are given by name.
 *
 * <p>The argument of a method's function is the array of arguments. All other methods throw
 * UnsupportedOperationException, so a test cannot pass on an invented answer.
 */
final class StandIn {
    private StandIn() {
    }

    static <T> T of(Class<T> type, Map<String, Function<Object[], Object>> methods) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly()
            .defaultAnswer(call -> answer(call, type.getSimpleName(), methods)));
    }

    /** Settings for a mock that Mockito creates in place of a constructor call. */
    static MockSettings settings(Map<String, Function<Object[], Object>> methods) {
        return Mockito.withSettings().defaultAnswer(call ->
            answer(call, call.getMethod().getDeclaringClass().getSimpleName(), methods));
    }

    private static Object answer(
            InvocationOnMock call, String type, Map<String, Function<Object[], Object>> methods) {
        String method = call.getMethod().getName();
        Function<Object[], Object> found = methods.get(method);
        if (found != null) {
            return found.apply(call.getArguments());
        }
        if (method.equals("toString")) {
            return "external " + type;
        }
        throw new UnsupportedOperationException("external broker: " + type + "." + method);
    }
}
