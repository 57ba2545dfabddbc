"""The pipe of children over HTTP: headers and paths of both sides, and the port of the parent.

    GET /v1/pipe?topics=price,promo.*     topics as JSON: name, id, leader epochs, settings
    GET /v1/pipe/{topic}/{partition}?offset&epoch&max_bytes&wait_ms
        200  stored batches, from the one that has the offset
        204  no records yet; with max_bytes=0 always: only the headers
        409  the histories differ: the epoch ends at another offset, or the offset is beyond the log
        410  the records at the offset were deleted
        503  too many children read old records, or a quota is used up: Retry-After

Each answer about a partition has the headers below. `node.pipes.pipe_source` fills `PipeSource`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from penstock.edge.pipes.down_pipe import EpochEnd

PATH: Final = "/v1/pipe"
TOPIC_ID: Final = "penstock-topic-id"
LEADER_EPOCH: Final = "penstock-leader-epoch"
HIGH_WATERMARK: Final = "penstock-high-watermark"
LOG_START: Final = "penstock-log-start"
EPOCH_END: Final = "penstock-epoch-end"
"""The largest epoch up to the one asked for, a colon, and the offset after its last record."""
BYTES_MAX: Final = 8_388_608
"""Of one answer, and of one batch."""
WAIT_MS_MAX: Final = 10_000
TOPICS_MAX: Final = 10_000
"""Topics in one list: some megabytes."""


class SourceTopic(NamedTuple):
    """A topic that a child may copy."""

    name: str
    topic_id: UUID
    leader_epochs: Sequence[int]
    settings: Mapping[str, str]


class SourcePartition(NamedTuple):
    """A partition at this moment."""

    topic_id: UUID
    leader_epoch: int
    start_offset: int
    high_watermark: int
    epoch_end: EpochEnd

    def headers(self) -> dict[str, str]:
        """Return the headers of an answer."""
        return {
            TOPIC_ID: str(self.topic_id),
            LEADER_EPOCH: str(self.leader_epoch),
            HIGH_WATERMARK: str(self.high_watermark),
            LOG_START: str(self.start_offset),
            EPOCH_END: f"{self.epoch_end.epoch}:{self.epoch_end.end_offset}",
        }


def partition_of(headers: Mapping[str, str]) -> SourcePartition | None:
    """Return the partition of an answer; None if it is not one of a pipe."""
    try:
        epoch, _, end_offset = headers[EPOCH_END].partition(":")
        return SourcePartition(
            UUID(headers[TOPIC_ID]),
            int(headers[LEADER_EPOCH]),
            int(headers[LOG_START]),
            int(headers[HIGH_WATERMARK]),
            EpochEnd(int(epoch), int(end_offset)),
        )
    except (KeyError, ValueError):
        return None


class PipeSource(Protocol):
    """The logs of this broker, for children. Calls raise `PenstockError`."""

    def reader(self, client: object) -> str:
        """Return the name of a child, for `catch_up`."""
        ...

    def topics(self, client: object, is_topic: Callable[[str], bool]) -> Sequence[SourceTopic]:
        """Return the topics that the client may read."""
        ...

    def partition(
        self, client: object, topic: str, partition: int, epoch: int
    ) -> SourcePartition | None:
        """Return a partition; None if it does not exist, or the client may not read it."""
        ...

    async def read(self, topic: str, partition: int, offset: int, bytes_max: int) -> memoryview:
        """Read stored batches up to the high watermark."""
        ...

    async def wait(self, topic: str, partition: int, offset: int, seconds: float) -> None:
        """Wait until the high watermark is above the offset, or the time is over."""
        ...

    def charge(self, client: object, size_bytes: int) -> float:
        """Count bytes for the fetch quota of a client; return the seconds that it has to wait."""
        ...

    def catch_up_max(self) -> int:
        """Return how many children may read old records at the same time."""
        ...

    def monotonic(self) -> float:
        """Return the time in seconds."""
        ...
