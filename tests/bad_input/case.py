"""`Case`: one bad input, its exact bytes, and the required outcome.

The outcome is either that the connection is closed or an error code; `NONE` means that the input is
accepted. `kafka` is the outcome of Apache Kafka where it differs, with the reason in `why`; a case
without it claims that Kafka does the same, and the suite `interop` holds us to it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode

Closed = Literal["closed"]
CLOSED: Final[Closed] = "closed"
Outcome = ErrorCode | Closed
NotCompared = Literal["not compared"]
NOT_COMPARED: Final[NotCompared] = "not compared"

MEBIBYTE: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table."""

    item: int
    """Its number in the list of bad inputs."""
    name: str
    data: bytes | Callable[[], bytes]
    """What is sent; a function where making it takes time or space."""
    expected: Outcome
    kafka: Outcome | NotCompared | None = None
    why: str = ""
    finishes: bool = False
    """Whether the peer sends FIN behind it."""
    grows_log: bool = False
    """Whether it is accepted, and the log may grow."""
    memory_bytes_max: int = 16 * MEBIBYTE
    """How much larger the broker may be afterwards."""

    @property
    def id(self) -> str:
        """How a test report names it."""
        return f"{self.item:02}-{self.name.replace(' ', '-')}"

    def sent(self) -> bytes:
        """The bytes."""
        return self.data if isinstance(self.data, bytes) else self.data()


def _first(*path: str) -> Callable[[Any], ErrorCode]:
    """The error code of the first element at the end of a path through arrays."""

    def find(message: Any) -> ErrorCode:  # noqa: ANN401 (any of twelve messages)
        for name in path:
            found = getattr(message, name)
            if not found:
                return ErrorCode.NONE
            message = found[0]
        return ErrorCode(message.error_code)

    return find


def _fetch(message: Any) -> ErrorCode:  # noqa: ANN401 (as above)
    whole = ErrorCode(message.error_code)
    return whole if whole != ErrorCode.NONE else _first("responses", "partitions")(message)


CODES: Final[dict[int, Callable[[Any], ErrorCode]]] = {
    ApiKey.PRODUCE: _first("responses", "partition_responses"),
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _first("topics", "partitions"),
    ApiKey.METADATA: _first("topics"),
    ApiKey.API_VERSIONS: _first(),
    ApiKey.CREATE_TOPICS: _first("topics"),
    ApiKey.DELETE_TOPICS: _first("responses"),
    ApiKey.INIT_PRODUCER_ID: _first(),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _first("topics", "partitions"),
    ApiKey.DESCRIBE_CONFIGS: _first("results"),
    ApiKey.DESCRIBE_CLUSTER: _first(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _first("topics"),
}
"""Where each API's answer has its first error code."""
