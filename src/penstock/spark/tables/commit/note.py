"""The note that every commit of ours writes into a table, as a value and as JSON (pure).

    {"version": 1, "pipeline": "orders", "kind": "batch", "run": "5f0c…", "epoch": 4,
     "sequence": 17, "cluster_id": "MkU3OEVB…",
     "topics": {"orders": {"id": "cu1-…", "begins": 0, "ends": [200, 180], "counts": [100, 80],
                           "epochs": 3}},
     "rows": 178, "rejects": 2, "expectations": {"positive_amount": 2},
     "newest_ms": 1767225600000, "small_batches": 12,
     "losses": [["orders", 1, 40, 60, 1767225600000]],
     "state": ["9b0e…", 17, 180, 1767225000000, 3, "5e0c…"]}

A note is complete: it has the offsets of its commit, and all offsets of the pipeline after it. The
offsets of a partition go from `begins[i]` to `ends[i]`. This commit added the last `counts[i]` of
them, and `lost[i]` are not in the table because they were deleted from the topic. So the newest
note is enough, even if older ones are lost.

Size counts, because Iceberg keeps the notes of all its snapshots in one file: numbers are in
columns, a column of equal numbers is one number, `partitions` is there only when they are not 0, 1,
2 …, and `lost` and `losses` only when records were lost. A thousand partitions need about 20 kB.
Writing a note above `NOTE_CHARACTERS_MAX` raises an error.

The same note has the same text. Any other text is a `NoteError`: the content of a table is never
guessed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from penstock.core.types import TopicPartition
from penstock.spark.errors import SparkQueryError
from penstock.spark.offsets import NO_EPOCH
from penstock.spark.partition_json import PartitionFormError, object_of, text_of
from penstock.spark.tables.values.empty_columns import NEVER

VERSION: Final = 1
NOTE_CHARACTERS_MAX: Final = 262_144
"""Four thousand partitions with the longest offsets. Many such notes slow down any table."""
EXPECTATIONS_MAX: Final = 100
"""The maximum number of expectations of one pipeline that a note counts."""
NAME_CHARACTERS_MAX: Final = 100
"""The length of a pipeline's or expectation's name, which is in property names and every note."""


SKIPPED: Final = "skipped"
"""The reason of a loss that the user declared: the pipeline continues after these offsets."""
LOSSES_MAX: Final = 50
"""The number of newest losses that a note names; older ones are only counted. About 3 kB."""
UNKNOWN_FIELDS_MAX: Final = 20
"""The number of fields without a column that a note names: those in the most values."""
TIMESTAMP_MS_MIN: Final = -(2**63)
"""Kafka's timestamps are signed; times before 1970 are negative."""


class NoteError(SparkQueryError):
    """A note in a table is unreadable, or a note cannot be written."""


class NoteKind(StrEnum):
    """The purpose of a commit of ours."""

    TAKE = "take"
    """A driver acquired the table; no rows."""
    BATCH = "batch"
    """A micro-batch, or its part that was not in the table yet."""
    FORGET = "forget"
    """The user let the table forget the pipeline, or a finished backfill became part of one."""


class PartitionRange(NamedTuple):
    """Offsets of one partition, the end not included."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    leader_epoch: int = NO_EPOCH
    """The epoch up to which the records before the end were written."""

    @property
    def at(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def is_empty(self) -> bool:
        """Whether the range has no offsets."""
        return self.start_offset >= self.end_offset

    def __str__(self) -> str:
        return f"{self.at} [{self.start_offset}, {self.end_offset})"


@dataclass(frozen=True, slots=True)
class BatchRanges:
    """The offsets of a micro-batch, with the ids of cluster and topics."""

    ranges: tuple[PartitionRange, ...]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The known ids."""
    cluster_id: str | None = None

    def __post_init__(self) -> None:
        assert len({one.at for one in self.ranges}) == len(self.ranges), "one range by partition"
        assert all(0 <= one.start_offset <= one.end_offset for one in self.ranges)


class HeldPartition(NamedTuple):
    """A pipeline's offsets of one partition after a commit: from `begin_offset` to `end_offset`.

    Lost offsets, if the user accepted gaps, are within this range and are counted.
    """

    begin_offset: int
    start_offset: int
    """The start of this commit's part; the end, if the commit added none."""
    end_offset: int
    leader_epoch: int = NO_EPOCH
    lost_count: int = 0
    """Offsets of the range that were deleted from the topic and are not in the table."""


class StateNote(NamedTuple):
    """The place of a stateful pipeline in the checkpoint that has its state."""

    checkpoint: str
    """The id of the checkpoint; Spark writes it once."""
    batch: int
    """The number of the last batch of that checkpoint in the table."""
    offset_count: int
    """The number of offsets of that batch, to recognise it when it is repeated."""
    watermark_ms: int
    """The watermark of the next batch, in milliseconds since 1970."""
    late_count: int = 0
    """The number of late records in all batches."""
    meaning: str = ""
    """The fingerprint of what decides the meaning of the batch: definition and function."""


class LostRange(NamedTuple):
    """Offsets of one partition that the table does not get.

    They were deleted from the topic before they were read, or the user skipped them.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    at_ms: int = 0
    """The time of the decision about the first commit after them."""
    reason: str = ""
    """`SKIPPED` if the user declared the loss."""

    @property
    def at(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """The counts of a commit's records."""

    rows: int = 0
    rejects: int = 0
    expectations: Mapping[str, int] = field(default_factory=dict)
    """The number of records that broke a rule, by its name."""
    newest_ms: int | None = None
    """The timestamp of the newest record; a note has it for all commits together."""
    unknown_fields: Mapping[str, int] = field(default_factory=dict)
    """Fields without a column: the number of checked values with each field."""
    looked_at: int = 0
    empty_columns: Mapping[str, bool] | None = None
    """Columns of values that are NULL in all rows, and whether they are new; None: no rows."""
    is_small: bool = False
    """Whether the driver wrote the batch itself, without Spark's tasks."""


@dataclass(frozen=True, slots=True)
class CommitNote:
    """The content of one commit of ours."""

    pipeline: str
    kind: NoteKind
    run: str
    """The driver's unique name."""
    epoch: int
    """The number of drivers that acquired the table for this pipeline: the highest is the owner."""
    sequence: int
    """The number of this pipeline's commits in this table, from 1."""
    held: Mapping[TopicPartition, HeldPartition] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    cluster_id: str | None = None
    counts: CommitCounts = field(default_factory=CommitCounts)
    newest_ms: int | None = None
    """The timestamp of the newest record of all commits."""
    losses: tuple[LostRange, ...] = ()
    """The newest losses, `LOSSES_MAX` at most; `held` counts all of them."""
    empty_columns: Mapping[str, int] | None = None
    """The number of rows since a column's last value, see `empty_columns`; None: unknown."""
    small_batches: int = 0
    """The number of commits of small batches that the driver wrote without Spark's tasks."""
    deleted_keys: str | None = None
    """The file of remembered deletions, see `files.deleted_keys`."""
    state: StateNote | None = None
    """None: the pipeline has no stateful function, or no batch of it was committed."""

    def ranges(self) -> tuple[PartitionRange, ...]:
        """Return the ranges of this commit."""
        return tuple(
            PartitionRange(*at, one.start_offset, one.end_offset, one.leader_epoch)
            for at, one in sorted(self.held.items())
            if one.start_offset < one.end_offset
        )


def write_note(note: CommitNote) -> str:
    """Return the text of a note; raise `NoteError` if it is too large for a table."""
    document: dict[str, Any] = {
        "version": VERSION,
        "pipeline": note.pipeline,
        "kind": note.kind.value,
        "run": note.run,
        "epoch": note.epoch,
        "sequence": note.sequence,
    }
    if note.cluster_id is not None:
        document["cluster_id"] = note.cluster_id
    document["topics"] = {
        name: _topic_document(name, note) for name in sorted({at.topic for at in note.held})
    }
    document["rows"] = note.counts.rows
    document["rejects"] = note.counts.rejects
    if note.counts.expectations:
        document["expectations"] = dict(sorted(note.counts.expectations.items()))
    if note.newest_ms is not None:
        document["newest_ms"] = note.newest_ms
    document |= _written_if_there(note)
    text = json.dumps(document, separators=(",", ":"))
    if len(text) > NOTE_CHARACTERS_MAX or len(note.counts.expectations) > EXPECTATIONS_MAX:
        raise NoteError(
            f"pipeline '{note.pipeline}' reads {len(note.held)} partitions with "
            f"{len(note.counts.expectations)} expectations; what each commit has to record of them "
            f"takes {len(text)} characters, and at most {NOTE_CHARACTERS_MAX} characters and "
            f"{EXPECTATIONS_MAX} expectations are kept. Give the topics to several pipelines: "
            "they may share a table."
        )
    return text


def _written_if_there(note: CommitNote) -> dict[str, Any]:
    """Return the parts that most notes do not have."""
    document: dict[str, Any] = {}
    if note.counts.unknown_fields:
        document["unknown_fields"] = dict(note.counts.unknown_fields)
        document["looked_at"] = note.counts.looked_at
    if note.empty_columns is not None:
        document["empty_columns"] = dict(sorted(note.empty_columns.items()))
    if note.small_batches:
        document["small_batches"] = note.small_batches
    if note.deleted_keys is not None:
        document["deleted_keys"] = note.deleted_keys
    if note.state is not None:
        document["state"] = list(note.state)
    if note.losses:
        document["losses"] = [list(one if one.reason else one[:-1]) for one in note.losses]
    return document


def read_note(text: str) -> CommitNote:
    """Return the note in a text; raise `NoteError` for any other text."""
    try:
        document = object_of(json.loads(text[: NOTE_CHARACTERS_MAX + 1]), "the note")
        version = _number(document.get("version"), 1)
        if version > VERSION:
            raise NoteError(
                f"the table was written by a newer Penstock: its notes have version {version}, and "
                f"this one reads versions up to {VERSION}. Use the newer Penstock for this table."
            )
        return _read_version_1(document)
    except (ValueError, PartitionFormError, RecursionError) as error:
        raise NoteError(
            f"a note of Penstock in the table cannot be read: {error}. Another program changed it, "
            "or the table's metadata is damaged. Roll the table back to a version before the "
            "change; Penstock then continues from the offsets in that version."
        ) from None


def _topic_document(name: str, note: CommitNote) -> dict[str, Any]:
    numbers = sorted(at.partition for at in note.held if at.topic == name)
    entries = [note.held[TopicPartition(name, number)] for number in numbers]
    document: dict[str, Any] = {}
    if name in note.topic_ids:
        document["id"] = note.topic_ids[name]
    if numbers != list(range(len(numbers))):
        document["partitions"] = numbers
    document["ends"] = [one.end_offset for one in entries]
    document["begins"] = _folded([one.begin_offset for one in entries])
    document["counts"] = _folded([one.end_offset - one.start_offset for one in entries])
    document["epochs"] = _folded([one.leader_epoch for one in entries])
    if any(one.lost_count for one in entries):
        document["lost"] = _folded([one.lost_count for one in entries])
    return document


def _folded(column: Sequence[int]) -> int | list[int]:
    return column[0] if len(set(column)) == 1 else list(column)


def _read_version_1(document: Mapping[str, Any]) -> CommitNote:
    held: dict[TopicPartition, HeldPartition] = {}
    topic_ids = {}
    for name, value in object_of(document.get("topics"), "topics").items():
        topic = object_of(value, name)
        if "id" in topic:
            topic_ids[name] = text_of(topic["id"], "id")
        held.update(_read_topic(name, topic))
    cluster_id, newest_ms = document.get("cluster_id"), document.get("newest_ms")
    deleted_keys = document.get("deleted_keys")
    expectations = object_of(document.get("expectations", {}), "expectations")
    unknown = object_of(document.get("unknown_fields", {}), "unknown_fields")
    return CommitNote(
        pipeline=text_of(document.get("pipeline"), "pipeline"),
        kind=NoteKind(text_of(document.get("kind"), "kind")),
        run=text_of(document.get("run"), "run"),
        epoch=_number(document.get("epoch"), 1),
        sequence=_number(document.get("sequence"), 1),
        held=held,
        topic_ids=topic_ids,
        cluster_id=None if cluster_id is None else text_of(cluster_id, "cluster_id"),
        counts=CommitCounts(
            _number(document.get("rows"), 0),
            _number(document.get("rejects"), 0),
            {name: _number(value, 0) for name, value in expectations.items()},
            unknown_fields={name: _number(value, 0) for name, value in unknown.items()},
            looked_at=_number(document.get("looked_at", 0), 0),
        ),
        newest_ms=None if newest_ms is None else _number(newest_ms, TIMESTAMP_MS_MIN),
        losses=tuple(map(_read_loss, document.get("losses", ()))),
        empty_columns=_read_empty(document.get("empty_columns")),
        small_batches=_number(document.get("small_batches", 0), 0),
        deleted_keys=None if deleted_keys is None else text_of(deleted_keys, "deleted_keys"),
        state=_read_state(document.get("state")),
    )


def _read_topic(name: str, topic: Mapping[str, Any]) -> dict[TopicPartition, HeldPartition]:
    ends = _column(topic.get("ends"), None, 0)
    numbers = _column(topic.get("partitions", list(range(len(ends)))), len(ends), 0)
    begins = _column(topic.get("begins"), len(ends), 0)
    counts = _column(topic.get("counts"), len(ends), 0)
    epochs = _column(topic.get("epochs"), len(ends), NO_EPOCH)
    lost = _column(topic.get("lost", 0), len(ends), 0)
    held = {
        TopicPartition(name, number): HeldPartition(begin, end - count, end, epoch, missing)
        for number, begin, end, count, epoch, missing in zip(
            numbers, begins, ends, counts, epochs, lost, strict=True
        )
    }
    if len(held) < len(numbers):
        raise ValueError(f"{name} has a partition twice")
    if any(not one.begin_offset <= one.start_offset <= one.end_offset for one in held.values()):
        raise ValueError(f"{name} has offsets that are not in order")
    return held


def _read_loss(value: object) -> LostRange:
    count = len(LostRange._fields)
    if not isinstance(value, list) or len(value) not in {count - 1, count}:
        raise ValueError("a loss has other parts than it should")
    topic, *numbers = value[: count - 1]
    reason = text_of(value[-1], "reason") if len(value) == count else ""
    partition, start, end, at_ms = (_number(one, 0) for one in numbers)
    return LostRange(text_of(topic, "topic"), partition, start, end, at_ms, reason)


def _read_state(value: object) -> StateNote | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != len(StateNote._fields):
        raise ValueError("the place in a checkpoint has other parts than it should")
    checkpoint, *numbers, meaning = value
    if not isinstance(meaning, str):
        raise ValueError("the fingerprint of a batch is not a text")
    batch, offset_count, watermark_ms, late_count = (_number(one, 0) for one in numbers)
    name = text_of(checkpoint, "checkpoint")
    return StateNote(name, batch, offset_count, watermark_ms, late_count, meaning)


def _read_empty(value: object) -> Mapping[str, int] | None:
    if value is None:
        return None
    found = object_of(value, "empty_columns")
    return {name: _number(rows, NEVER) for name, rows in found.items()}


def _column(value: object, length: int | None, lowest: int) -> list[int]:
    if length is not None and isinstance(value, int):
        value = [value] * length
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise ValueError("a column has too few or too many numbers")
    return [_number(one, lowest) for one in value]


def _number(value: object, lowest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number of at least {lowest}")
    return value
