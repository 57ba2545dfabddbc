"""Values and errors of the push client."""

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
