"""Values and errors of the push client."""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.errors import PenstockError
from penstock.protocol.push.data import BATCH, Headers, PushData
from penstock.protocol.push.payloads import Refusal


class PushRecord(NamedTuple):
    """A delivered record, or a stored batch of a subscription with `format` batch."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    """None: the record deletes its key."""
    headers: Headers
    leader_epoch: int
    delivery_count: int
    message_id: int
    """Acknowledge it with `PushSubscription.acknowledge`."""
    is_batch: bool = False
    """Whether the value is a stored batch."""


class PushReset(NamedTuple):
    """The broker begins a refresh: a new data set follows, and then `PushReady`.

    Acknowledge it to accept the refresh; the old data set stays valid until `PushReady`.
    """

    refresh_id: str
    offsets: dict[int, int]
    """V: where the data set ends, by partition."""
    records: int
    """Offsets of the data set; it has at most this number of records."""
    message_id: int


class PushReady(NamedTuple):
    """The new data set is complete: replace the old one, then acknowledge this."""

    refresh_id: str
    offsets: dict[int, int]
    message_id: int


PushEvent = PushRecord | PushReset | PushReady


class PublishedRecord(NamedTuple):
    """Where a published record is."""

    topic: str
    partition: int
    offset: int


class PushRequestError(PenstockError):
    """The broker refused a request."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.error} ({refusal.code})")
        self.code = refusal.code
        self.is_retriable = refusal.retriable


class PushClosedError(PenstockError):
    """The session has ended."""

    def __init__(self, reason: str, code: str = "", retry_after_ms: int | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.retry_after_ms = retry_after_ms
        """When the broker expects this client again; None if it did not say."""


def record_of(topic: str, message_id: int, data: PushData) -> PushRecord:
    """Return the record of a DATA frame."""
    return PushRecord(
        topic,
        data.partition,
        data.offset,
        data.timestamp_ms,
        data.key,
        data.value,
        data.headers,
        data.leader_epoch,
        data.delivery_count,
        message_id,
        data.kind == BATCH,
    )


def refresh_event(
    found: Mapping[str, object], offsets: dict[int, int], message_id: int, *, is_reset: bool
) -> PushReset | PushReady:
    """Return the event of a RESET or READY frame."""
    refresh_id, records = str(found.get("id", "")), found.get("records")
    if not is_reset:
        return PushReady(refresh_id, offsets, message_id)
    return PushReset(refresh_id, offsets, records if isinstance(records, int) else 0, message_id)
