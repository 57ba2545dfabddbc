"""`Operation`: one HTTP operation; routes and description are generated from a table of them.

An operation is executed over Kafka's wire, by the same client as the command line's, on a thread of
its own. It gets checked parameters and returns a model; it does not know HTTP. `GET` never changes
anything: a table with a `GET` that does is a defect, and asserts.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from penstock.admin.model import Answer, Input, Page
from penstock.admin.ports import Caller, LeaseDesk, PipeDesk, SessionBook
from penstock.client.cluster import Cluster

API_PREFIX: Final = "/api/v1"

Known = TypeVar("Known", bound=Input)
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Asked:
    """The checked parameters and body of a request."""

    path: Input
    query: Input
    body: Input

    def path_as(self, kind: type[Known]) -> Known:
        """Return the parameters in the path."""
        assert isinstance(self.path, kind)
        return self.path

    def query_as(self, kind: type[Known]) -> Known:
        """Return the query parameters."""
        assert isinstance(self.query, kind)
        return self.query

    def body_as(self, kind: type[Known]) -> Known:
        """Return the body."""
        assert isinstance(self.body, kind)
        return self.body


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path below `/api/v1`."""

    method: str
    path: str
    name: str
    """The operation's id in the description."""
    summary: str
    tag: str
    call: Callable[[Cluster, Asked], Answer | None]
    answer: type[Answer] | None = None
    """None: 204, without a body."""
    status: int = 200
    description: str = ""
    path_model: type[Input] = Input
    query_model: type[Input] = Input
    body_model: type[Input] | None = None
    on_broker: Callable[[SessionBook, Caller, Asked], Answer | None] | None = None
    """Instead of `call`, on the event loop, for an operation that Kafka's protocol has not."""
    on_pipes: Callable[[PipeDesk, Caller, Asked], Awaitable[Answer | None]] | None = None
    """Instead of `call`, on the event loop, for an operation on pipes."""
    on_leases: Callable[[LeaseDesk, Caller, Asked], Awaitable[Answer | None]] | None = None
    """Instead of `call`, on the event loop, for an operation on leases."""
    location: Callable[[Asked], str] | None = None
    """The path of the created resource, for `Location`."""

    def __post_init__(self) -> None:
        assert self.method in {"GET", "POST", "PATCH", "DELETE"}, self.method
        assert self.method != "GET" or self.body_model is None, self.name
        assert (self.answer is None) == (self.status == 204), self.name

    @property
    def is_on_loop(self) -> bool:
        """Whether the broker itself carries it out, on its event loop."""
        by = (self.on_broker, self.on_pipes, self.on_leases)
        return any(one is not None for one in by)


def page(
    entries: Iterable[Entry], name_of: Callable[[Entry], str], asked: Page
) -> tuple[list[Entry], str | None]:
    """Return the entries of one page of a list sorted by name, and the name to continue after."""
    rest = [one for one in entries if asked.after is None or name_of(one) > asked.after]
    shown: Sequence[Entry] = rest[: asked.limit]
    return list(shown), name_of(shown[-1]) if len(rest) > len(shown) else None
