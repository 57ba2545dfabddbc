"""The reactions of a push session: work that `session` decides and `connection` carries out."""

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.protocol.push.data import PushData
from penstock.protocol.push.payloads import Credentials, SubscribeRequest


class Send(NamedTuple):
    """Write these bytes."""

    data: bytes


class Authenticate(NamedTuple):
    """Check credentials; `authenticated` or `authentication_failed` follows."""

    credentials: Credentials | None


class Open(NamedTuple):
    """Check access, and find the positions; `opened` or `open_refused` follows."""

    number: int
    request: SubscribeRequest


class Ended(NamedTuple):
    """Forget the waits and reads of a subscription."""

    number: int


class Published(NamedTuple):
    """A record that a client publishes."""

    message_id: int
    topic: str
    data: PushData
    size_bytes: int
    partition_count: int
    """Of the topic; the subscription may end before the record is appended."""


class Publish(NamedTuple):
    """Append these records; `published` or `publish_refused` follows for each."""

    records: list[Published]


class Commit(NamedTuple):
    """Commit offsets of a group; `committed` or `commit_refused` follows."""

    number: int
    group: str
    topic: str
    offsets: dict[int, int]
    message_id: int | None
    """Of the COMMIT_OFFSET that asks for it; None: acknowledged positions."""


class Settled(NamedTuple):
    """An acknowledgement of one record of a queue."""

    message_id: int
    partition: int
    offset: int
    kind: int
    """Accept 1, release 2, reject 3, renew 4."""


class Settle(NamedTuple):
    """Acknowledge records of a queue subscription; `queue_settled` follows."""

    number: int
    settled: list[Settled]


class FindBounds(NamedTuple):
    """Find the bounds of a topic for a refresh; `begin_refresh` or `refresh_refused` follows."""

    number: int
    topic: str
    message_id: int | None
    """Of the RESET of the client; None: an operator asks for the refresh."""


class Close(NamedTuple):
    """Close the connection when everything written is sent."""

    reason: str


Reaction = Send | Authenticate | Open | Ended | Publish | Commit | Settle | FindBounds | Close


class Wanted(NamedTuple):
    """A read that the credit of a subscription allows."""

    number: int
    topic: str
    partition: int
    offset: int
    is_batch_format: bool


@dataclass(frozen=True, slots=True)
class OpenedTopic:
    """A topic that a subscription may use."""

    partition_count: int
    positions: dict[int, int]
    """Where each partition that is served here starts."""
    message_bytes_max: int
    uncommitted: dict[int, int]
    """Positions of a group that has no commit yet; they are committed first."""
    elsewhere: dict[int, int]
    """Partitions that other brokers lead, and the ids of these brokers."""
    addresses: dict[int, str] = field(default_factory=dict)
    """The push addresses of these brokers, as far as they are known."""
    queue_group: str | None = None
    """The share group of a subscription with mode queue."""
    lock_seconds: float = 0.0
    """How long a record of the share group is locked."""
    buffer_size: int | None = None
    """Unacknowledged records of one subscription at most; None: credit is the only bound."""
