"""The reactions of a push session: work that `session` decides and `connection` carries out."""

from dataclasses import dataclass
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


class Close(NamedTuple):
    """Close the connection when everything written is sent."""

    reason: str


Reaction = Send | Authenticate | Open | Ended | Publish | Commit | Close


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
