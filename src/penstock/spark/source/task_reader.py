"""A task of the source: fetches the batches of its range and decodes them to Arrow, in pieces.

Guarantees: every record of the range is returned once, in the order of its offsets, and nothing
else. Memory is bounded by two fetches and one Arrow batch, whatever the length of the range. A
range also ends normally if compaction removed its last records, or if they are transaction markers.

Planned records may be deleted before they are read, by retention or with their topic. They are a
loss by the rules of `data_loss`: the task raises an error, or continues after the loss and reports
the number of skipped offsets, in its log and to the driver.

A task with leased files reads them first. If its lease ends meanwhile, it continues through Fetch
at the next offset, with the same rules about losses.
"""

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import pyarrow as pa

from penstock.client.calls import FetchBounds
from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.records.range_reader import RangeGoneError, RangeReader, TopicRecreatedError
from penstock.client.transport.options import ClientOptions
from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.spark.decode.columns import BatchDecoder
from penstock.spark.loss.channel import report_to_driver
from penstock.spark.loss.data_loss import Loss, LossKind
from penstock.spark.loss.losses import LOGGER, LossCounter
from penstock.spark.loss.reports import LossReport
from penstock.spark.planning import OffsetRange, ReadTask, SealedSplit
from penstock.spark.sealed.sealed_batches import SealedBatches, SealedGoneError
from penstock.spark.sealed.sealed_options import SegmentsUse
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.subscription import topic_id_from
from penstock.spark.worker_process import settle


class TaskSettings(NamedTuple):
    """The settings of every task of a query; they are sent to the executors."""

    client: ClientOptions
    fetch: FetchBounds
    include_headers: bool
    is_read_committed: bool
    fail_on_data_loss: bool
    requires_segments: bool = False
    """Whether a split must not be read through Fetch when its lease has ended."""

    @classmethod
    def of(cls, options: SourceOptions) -> "TaskSettings":
        """Return the options that tasks need."""
        return cls(
            options.task_client,
            options.fetch,
            options.include_headers,
            options.is_read_committed,
            options.fail_on_data_loss,
            options.sealed.use is SegmentsUse.ONLY,
        )


def read_task(task: ReadTask, settings: TaskSettings) -> Iterator[pa.RecordBatch]:
    """Return the rows of a task."""
    settle()
    with open_cluster(settings.client) as cluster:
        yield from read_range(cluster, task, settings)


def read_range(
    cluster: Cluster,
    task: ReadTask,
    settings: TaskSettings,
    on_loss: Callable[[OffsetRange], None] | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Return the rows of a task, from an open cluster; `on_loss` receives the lost offsets."""
    losses = LossCounter(fail_on_data_loss=settings.fail_on_data_loss)
    rest = task.range
    if task.sealed is not None:
        files = _Files(task, task.sealed, settings)
        yield from files.rows()
        rest = OffsetRange(rest.at, files.next_offset, rest.until_offset)
    while rest.size > 0:
        piece = _Piece(cluster, task, rest, settings)
        yield from piece.rows()
        if piece.loss is None:
            return
        losses.report([piece.loss])
        report = piece.report(piece.loss)
        if task.losses_to is not None:
            report_to_driver(task.losses_to, report)
        if on_loss is not None and report.lost.size > 0:
            on_loss(report.lost)
        rest = OffsetRange(rest.at, piece.goes_on_at, rest.until_offset)


class _Files:
    """A reader of a task's leased files, until its end or until its lease ended."""

    def __init__(self, task: ReadTask, split: SealedSplit, settings: TaskSettings) -> None:
        self._task = task
        self._split = split
        self._settings = settings
        self.next_offset = task.range.from_offset
        """The offset at which Fetch continues: the end of the range unless the lease ended."""

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Return the rows up to the end of the range, or of the lease."""
        decoder = _decoder(self._task.range, self._settings)
        self.next_offset = self._task.range.until_offset
        try:
            for chunk in SealedBatches(self._split):
                yield from decoder.feed(chunk.data, chunk.aborted)
        except SealedGoneError as error:
            if self._settings.requires_segments:
                raise
            self.next_offset = decoder.next_offset
            LOGGER.warning(
                "%s is read through Fetch from offset %d: %s",
                self._task.range.at,
                self.next_offset,
                error,
            )
        yield from decoder.finish()


def _decoder(rest: OffsetRange, settings: TaskSettings) -> BatchDecoder:
    return BatchDecoder(
        rest.at.topic,
        rest.at.partition,
        rest.from_offset,
        rest.until_offset,
        include_headers=settings.include_headers,
        is_read_committed=settings.is_read_committed,
    )


class _Piece:
    """A reader of one range, until its end or until a loss."""

    def __init__(
        self, cluster: Cluster, task: ReadTask, rest: OffsetRange, settings: TaskSettings
    ) -> None:
        self._range = rest
        self._reader = RangeReader(
            cluster,
            rest.at,
            rest.from_offset,
            rest.until_offset,
            is_read_committed=settings.is_read_committed,
            bounds=settings.fetch,
            expected_topic_id=None if task.topic_id is None else topic_id_from(task.topic_id),
            leader_epoch=task.leader_epoch,
        )
        self._decoder = _decoder(rest, settings)
        self.loss: Loss | None = None
        """The loss, if the rows ended before the range."""
        self.goes_on_at = rest.until_offset
        """The offset after the loss."""

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Return the rows up to the end or a loss."""
        try:
            for fetched in self._reader:
                yield from self._decoder.feed(fetched.data, fetched.aborted)
        except RangeGoneError as error:
            self._note_gone(error)
        except TopicRecreatedError:
            self._note(LossKind.RECREATED, "was deleted and created again while it was read")
        except UnknownTopicOrPartitionError:
            self._note(LossKind.DELETED, "was deleted while it was read")
        yield from self._decoder.finish()

    def report(self, loss: Loss) -> LossReport:
        """Return the loss report for the driver."""
        first = self.goes_on_at - loss.offsets
        lost = OffsetRange(self._range.at, first, self.goes_on_at)
        return LossReport(lost, loss.kind, loss.what, loss.goes_on)

    def _note_gone(self, error: RangeGoneError) -> None:
        wanted, first = error.wanted_offset, error.log_start_offset
        if wanted >= first:
            self._note(LossKind.BEYOND_END, f"ends at offset {error.end_offset}")
            return
        self.goes_on_at = min(first, self._range.until_offset)
        self._note(
            LossKind.REMOVED,
            f"begins at offset {first} now: earlier records were removed by retention or "
            "DeleteRecords while they were read",
        )

    def _note(self, kind: LossKind, what: str) -> None:
        at, next_offset = self._range.at, self._decoder.next_offset
        self.loss = Loss(
            kind,
            at,
            f"offset {next_offset} of {at} is wanted, but it {what}",
            f"reading goes on at offset {self.goes_on_at}",
            max(0, self.goes_on_at - next_offset),
        )
