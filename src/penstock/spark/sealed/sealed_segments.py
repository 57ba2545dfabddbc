"""`SealedSegments`: plans the tasks of a batch from leased segments, and the rest through Fetch.

Guarantees: the tasks cover each offset of the ranges once. With `auto`, any failure to lease or to
see the files leaves all offsets of that topic to Fetch, and is logged once; with `only` it is an
error. So is each partition that the broker skips, unless nothing of it is sealed. Offsets below the
log start are left to Fetch, whose rules about losses apply: a leased segment may still have their
records. A lease is trusted only if it is of the same cluster, the same topic id and not of an older
leader epoch than the query knows. A plan that raises an error keeps no lease.

`release` ends the leases of the last plan: a stream and a backfill call it, when the tasks of a
batch have ended. A batch query cannot, and its leases end after `LEASE_SECONDS`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from penstock.client.transport.options import ClientOptions
from penstock.core.errors import PenstockError
from penstock.core.lease_limits import LEASE_PARTITIONS_MAX
from penstock.core.types import TopicPartition
from penstock.spark.errors import SparkQueryError
from penstock.spark.loss.losses import LOGGER
from penstock.spark.planning import (
    OffsetRange,
    SealedPart,
    SealedSplit,
    Splitting,
    split_ranges,
)
from penstock.spark.sealed.lease_answers import (
    AbortedSpan,
    LeaseAnswer,
    LeasePartition,
    LeaseSegment,
)
from penstock.spark.sealed.lease_port import LeasePort, LeaseUnavailableError
from penstock.spark.sealed.sealed_files import LEASES, LeaseDirectory
from penstock.spark.sealed.sealed_options import SealedOptions, SegmentsUse
from penstock.spark.sealed.segment_indexes import IndexEntry, aborted_within
from penstock.spark.sealed.split_plan import (
    SPLIT_BYTES,
    PlannedRange,
    Split,
    cut_segment,
    in_starting_order,
    merged,
    split_bytes,
    uncovered,
)

NOTHING_SEALED: Final = "NOTHING_SEALED"
"""The code of a partition that has no sealed segment with these offsets: no failure."""
LEASE_SECONDS: Final = 3_600
"""An hour; a task that reads later continues through Fetch."""
WARNINGS_MAX: Final = 100
REASON_CHARACTERS_MAX: Final = 500


class SealedSegmentsError(SparkQueryError):
    """With `segments` = `only`: the segments cannot be read as files."""


class Known(NamedTuple):
    """The topic id and the leader epoch that the query has found."""

    topic_id: str | None
    leader_epoch: int


class _Found(NamedTuple):
    """The leased part of a partition, and where its files are."""

    partition: LeasePartition
    directory: LeaseDirectory
    aborted: list[AbortedSpan]


class SealedSegments:
    """The leased segments of one query."""

    def __init__(
        self,
        options: SealedOptions,
        client: ClientOptions,
        splitting: Splitting,
        *,
        is_read_committed: bool,
        open_port: Callable[[SealedOptions, ClientOptions], LeasePort] | None = None,
    ) -> None:
        self._options = options
        self._splitting = splitting
        self._is_read_committed = is_read_committed
        self._port: LeasePort | None = None
        if options.is_on:
            self._port = (open_port or _open_port)(options, client)
        self._leases: list[str] = []
        self._warned: set[str] = set()

    @property
    def is_on(self) -> bool:
        """Whether leases are asked for."""
        return self._port is not None

    def plan(
        self,
        ranges: Sequence[OffsetRange],
        known: Mapping[TopicPartition, Known],
        cluster_id: str | None,
        record_bytes: Mapping[TopicPartition, float],
    ) -> list[tuple[OffsetRange, SealedSplit | None]]:
        """Return the ranges of the tasks, in starting order, each with its files if it has some."""
        try:
            return self._planned(ranges, self._lease(ranges, known, cluster_id), record_bytes)
        except BaseException:
            # The caller gets no tasks, so nothing reads these leases.
            self.release()
            raise

    def _planned(
        self,
        ranges: Sequence[OffsetRange],
        found: Mapping[TopicPartition, _Found],
        record_bytes: Mapping[TopicPartition, float],
    ) -> list[tuple[OffsetRange, SealedSplit | None]]:
        if not found:
            return [(one, None) for one in split_ranges(ranges, self._splitting, record_bytes)]
        wanted = {one.at: one for one in ranges if one.size > 0}
        total_bytes = sum(
            segment.size_bytes for one in found.values() for segment in one.partition.segments
        )
        bytes_max = split_bytes(
            total_bytes,
            min(SPLIT_BYTES, self._splitting.bytes_max),
            self._splitting.partitions_min,
        )
        splits = {
            at: _splits_of(one, wanted[at], bytes_max) for at, one in found.items() if at in wanted
        }
        planned = {
            at: [
                PlannedRange(OffsetRange(at, one.from_offset, one.until_offset), one)
                for one in some
            ]
            for at, some in splits.items()
        }
        rest = [piece for at, one in wanted.items() for piece in uncovered(one, splits.get(at, ()))]
        by_fetch = split_ranges(rest, Splitting(bytes_max=self._splitting.bytes_max), record_bytes)
        for one in by_fetch:
            planned.setdefault(one.at, []).append(PlannedRange(one, None))
        return [
            (one.range, None if one.split is None else self._task_split(found, one))
            for one in in_starting_order(sorted(planned.items()))
        ]

    def release(self) -> None:
        """End the leases of the last plan; a failure is not one of the query: they end anyway."""
        leases, self._leases = self._leases, []
        for lease_id in leases:
            self._release(lease_id)

    def _release(self, lease_id: str) -> None:
        assert self._port is not None
        try:
            self._port.release(lease_id)
        except PenstockError as error:
            LOGGER.info("lease %s ends by itself: %s", lease_id, error)

    def _task_split(
        self, found: Mapping[TopicPartition, _Found], planned: PlannedRange
    ) -> SealedSplit:
        at, split = planned.range.at, planned.split
        assert split is not None
        one = found[at]
        aborted = aborted_within(one.aborted, split.from_offset, split.until_offset)
        return SealedSplit(
            tuple(
                SealedPart(
                    one.directory.log_path(at.partition, piece.segment),
                    piece.begin,
                    piece.end,
                    piece.segment.base_offset,
                    piece.segment.next_offset,
                )
                for piece in split.pieces
            ),
            tuple((each.producer_id, each.first_offset, each.last_offset) for each in aborted),
        )

    # --- Leases ---

    def _lease(
        self,
        ranges: Sequence[OffsetRange],
        known: Mapping[TopicPartition, Known],
        cluster_id: str | None,
    ) -> dict[TopicPartition, _Found]:
        found: dict[TopicPartition, _Found] = {}
        if self._port is None:
            return found
        self.release()
        wanted = sorted(one for one in ranges if one.size > 0)
        for topic, some in groupby(wanted, key=lambda one: one.at.topic):
            of_topic = list(some)
            for first in range(0, len(of_topic), LEASE_PARTITIONS_MAX):
                part = of_topic[first : first + LEASE_PARTITIONS_MAX]
                try:
                    found |= self._lease_topic(self._port, topic, part, known, cluster_id)
                except (PenstockError, OSError) as error:
                    self._unavailable(topic, error)
        return found

    def _lease_topic(
        self,
        port: LeasePort,
        topic: str,
        ranges: list[OffsetRange],
        known: Mapping[TopicPartition, Known],
        cluster_id: str | None,
    ) -> dict[TopicPartition, _Found]:
        answer = port.grant(topic, ranges, LEASE_SECONDS)
        if not answer.partitions:
            self._require_whole(answer)
            return {}
        self._leases.append(answer.lease_id)
        try:
            self._require_whole(answer)
            return self._files_of(answer, topic, ranges, known, cluster_id)
        except (PenstockError, OSError):
            self._release(self._leases.pop())
            raise

    def _files_of(
        self,
        answer: LeaseAnswer,
        topic: str,
        ranges: list[OffsetRange],
        known: Mapping[TopicPartition, Known],
        cluster_id: str | None,
    ) -> dict[TopicPartition, _Found]:
        """Return the leased files; raise an error if they are not those of the query."""
        data_directory = self._options.path
        if data_directory is None:
            data_directory = answer.directory.removesuffix(f"/{LEASES}/{answer.lease_id}")
        directory = LeaseDirectory(data_directory, answer.lease_id)
        _require_same_log(answer, ranges, known, cluster_id)
        found = {}
        for partition in answer.partitions:
            at = TopicPartition(topic, partition.partition)
            if at not in known:
                raise LeaseUnavailableError(f"{at} is leased and was not asked for")
            if not directory.has(partition):
                raise LeaseUnavailableError(
                    f"the files of lease {answer.lease_id} are not in {directory.path} on this "
                    "machine. Set segments.path to the data directory of the broker, as driver and "
                    "executors see it"
                )
            aborted = directory.aborted(partition) if self._is_read_committed else []
            found[at] = _Found(partition, directory, aborted)
        return found

    def _require_whole(self, answer: LeaseAnswer) -> None:
        """Log, or raise with `only`, why sealed segments are not leased."""
        skipped = [one for one in answer.skipped if one.code != NOTHING_SEALED]
        if not skipped:
            return
        reasons = "; ".join(sorted({one.reason for one in skipped}))[:REASON_CHARACTERS_MAX]
        text = f"{len(skipped)} partitions are not leased, or not as a whole: {reasons}"
        if self._options.use is SegmentsUse.ONLY:
            raise LeaseUnavailableError(text)
        if self._is_new(text):
            LOGGER.info("%s is read through Fetch in part: %s", answer.topic, text)

    def _is_new(self, text: str) -> bool:
        """Return whether a text was not logged yet."""
        is_new = text not in self._warned and len(self._warned) < WARNINGS_MAX
        if is_new:
            self._warned.add(text)
        return is_new

    def _unavailable(self, topic: str, error: Exception) -> None:
        if self._options.use is SegmentsUse.ONLY:
            raise SealedSegmentsError(
                f"option 'segments' is 'only', and the segments of {topic} cannot be read as "
                f"files: {error}. Set it to auto to read through Fetch instead."
            ) from error
        text = str(error)
        if self._is_new(text):
            LOGGER.warning("%s is read through Fetch instead of sealed segments: %s", topic, text)


def _open_port(options: SealedOptions, client: ClientOptions) -> LeasePort:
    assert options.url is not None
    return LeasePort(options.url, client.security)


def _require_same_log(
    answer: LeaseAnswer,
    ranges: Iterable[OffsetRange],
    known: Mapping[TopicPartition, Known],
    cluster_id: str | None,
) -> None:
    """Raise unless the lease is of the log that the query reads."""
    if cluster_id is not None and answer.cluster_id != cluster_id:
        raise LeaseUnavailableError(
            f"segments.url is a broker of cluster {answer.cluster_id}, and the query reads "
            f"{cluster_id}"
        )
    epochs = {one.partition: one.leader_epoch for one in answer.partitions}
    for one in ranges:
        topic_id, leader_epoch = known[one.at]
        if topic_id is not None and topic_id != answer.topic_id:
            raise LeaseUnavailableError(
                f"{answer.topic} has id {answer.topic_id} at segments.url, and {topic_id} in the "
                "query: it is another topic"
            )
        found_epoch = epochs.get(one.at.partition, leader_epoch)
        if found_epoch < leader_epoch:
            raise LeaseUnavailableError(
                f"{one.at} is at leader epoch {leader_epoch}, and {found_epoch} at segments.url: "
                "another broker leads it"
            )


def _splits_of(found: _Found, wanted: OffsetRange, bytes_max: int) -> list[Split]:
    """Return the splits of one partition."""
    number, directory = found.partition.partition, found.directory
    wanted = wanted._replace(from_offset=max(wanted.from_offset, found.partition.log_start_offset))

    def pieces(segment: LeaseSegment) -> Sequence[IndexEntry]:
        # A segment that is read whole, and is small, needs no index.
        is_whole = (
            wanted.from_offset <= segment.base_offset and segment.next_offset <= wanted.until_offset
        )
        if is_whole and segment.size_bytes <= bytes_max:
            return ()
        return directory.offset_index(number, segment)

    return merged(
        (
            piece
            for segment in found.partition.segments
            for piece in cut_segment(
                segment,
                wanted,
                pieces(segment),
                partial(directory.first_offset, number, segment),
                bytes_max,
            )
        ),
        bytes_max,
    )
