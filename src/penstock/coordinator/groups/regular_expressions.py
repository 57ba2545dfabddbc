"""The only module that uses RE2: regular expressions over topic names (KIP-848).

RE2 runs in time linear in its input, so that no client can stop a broker with an expression; Kafka
uses it for the same reason, and promises its syntax to clients. An expression is matched against
the whole name. The library is imported when the first one arrives. Matching is bounded three ways:
length of the expression, memory of the compiled one, and topics that exist. It does NOT know
permissions on topics.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from penstock.coordinator.groups.refused import RefusedError
from penstock.protocol.error_codes import ErrorCode

EXPRESSION_CHARACTERS_MAX: Final = 4_096
"""A topic name has at most 249 characters, so this is enough for a dozen of them in full."""
COMPILED_BYTES_MAX: Final = 1 << 20
"""Memory for one compiled expression: refuses `((a{100}){100}){100}` before it is built."""
COMPILED_COUNT_MAX: Final = 256
"""Compiled expressions that are kept; each group seldom has more than one."""


def check(expression: str) -> None:
    """Raise for an expression that RE2 rejects."""
    _compiled(expression)


def matching(expression: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole."""
    matches = _compiled(expression).fullmatch
    return frozenset(name for name in names if matches(name))


@lru_cache(maxsize=COMPILED_COUNT_MAX)
def _compiled(expression: str) -> Any:  # noqa: ANN401 - the library has no types
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise _refusal(expression, f"longer than {EXPRESSION_CHARACTERS_MAX} characters")
    import re2

    options = re2.Options()
    options.max_mem = COMPILED_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        raise _refusal(expression, _words(error)) from None


def _words(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _refusal(expression: str, reason: str) -> RefusedError:
    shown = expression[:EXPRESSION_CHARACTERS_MAX]
    return RefusedError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}.",
    )
