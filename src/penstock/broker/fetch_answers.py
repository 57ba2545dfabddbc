"""Builds the partitions of a Fetch answer from records read or from errors. Pure."""

from collections.abc import Sequence
from uuid import UUID

from penstock.broker.fetch_sessions import FetchPlan, SessionPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    PartitionData,
)
from penstock.replication.read_result import PartitionRead, Redirect
from penstock.storage.log import open_transactions as storage

Outcome = PartitionRead | ErrorCode | Redirect
"""An error by its code alone: an exception keeps frames, and a fetch may have 60,000 of them."""


class TopicAnswers:
    """The partitions of an answer, by topic."""

    __slots__ = ("_data", "_names", "_plan", "_reads_committed")

    def __init__(self, plan: FetchPlan, *, reads_committed: bool) -> None:
        self._plan = plan
        self._reads_committed = reads_committed
        self._data: dict[UUID | str, list[PartitionData]] = {}
        self._names: dict[UUID | str, SessionPartition] = {}

    def add(self, asked: SessionPartition, outcome: Outcome) -> None:
        """Add one partition, unless the client's session makes it unnecessary."""
        data = partition_data(asked, outcome, reads_committed=self._reads_committed)
        is_read = isinstance(outcome, PartitionRead)
        has_news = bool(data.records) or not is_read or data.diverging_epoch.epoch >= 0
        if self._plan.include(
            asked,
            has_news=has_news,
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
        ):
            self._data.setdefault(asked.key[0], []).append(data)
            self._names.setdefault(asked.key[0], asked)

    def responses(self) -> tuple[FetchableTopicResponse, ...]:
        """Return the topics that have partitions in the answer."""
        return tuple(
            FetchableTopicResponse(
                topic=self._names[key].topic,
                topic_id=self._names[key].topic_id,
                partitions=tuple(found),
            )
            for key, found in self._data.items()
        )


def partition_data(
    asked: SessionPartition, outcome: Outcome, *, reads_committed: bool
) -> PartitionData:
    """Return the answer for one partition."""
    if not isinstance(outcome, PartitionRead):
        return _unread(asked, outcome)
    if outcome.diverging_epoch is not None:
        return PartitionData(
            partition_index=asked.partition,
            error_code=ErrorCode.NONE,
            high_watermark=outcome.high_watermark,
            last_stable_offset=outcome.last_stable_offset,
            log_start_offset=outcome.log_start_offset,
            diverging_epoch=EpochEndOffset(
                epoch=outcome.diverging_epoch.epoch, end_offset=outcome.diverging_epoch.end_offset
            ),
            records=b"",
        )
    return PartitionData(
        partition_index=asked.partition,
        error_code=ErrorCode.NONE,
        high_watermark=outcome.high_watermark,
        last_stable_offset=outcome.last_stable_offset,
        log_start_offset=outcome.log_start_offset,
        aborted_transactions=_aborted(outcome.aborted) if reads_committed else None,
        records=outcome.records,
    )


def _unread(asked: SessionPartition, outcome: ErrorCode | Redirect) -> PartitionData:
    """Return the answer for a partition that was not read here."""
    if isinstance(outcome, ErrorCode):
        return PartitionData(
            partition_index=asked.partition,
            error_code=outcome,
            high_watermark=-1,
            records=b"",
        )
    return PartitionData(
        partition_index=asked.partition,
        error_code=ErrorCode.NONE,
        high_watermark=outcome.high_watermark,
        last_stable_offset=outcome.last_stable_offset,
        log_start_offset=outcome.log_start_offset,
        preferred_read_replica=outcome.replica,
        records=b"",
    )


def _aborted(found: Sequence[storage.AbortedTransaction]) -> tuple[AbortedTransaction, ...]:
    if not found:
        return ()
    return tuple(
        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
        for entry in found
    )
