"""The reasons why a driver must not commit to a table, with their remedies (pure).

Each reason has one text. A text is complete: its reader finds it in a log and may not have started
the pipeline.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.spark.errors import SparkQueryError, first_of
from penstock.spark.tables.commit.note import PartitionRange

_NAMED_MAX: Final = 5
"""The number of ranges named in a text; further ones are counted."""


class StopReason(StrEnum):
    """The reason why a table must not get a commit."""

    FENCED = "fenced"
    """Another driver has acquired the table since."""
    WENT_BACK = "went back"
    """The table lacks commits of this driver."""
    GAP = "gap"
    """Offsets between the held ones and the batch would be missing."""
    BEFORE_BEGIN = "before begin"
    """The offsets are before the first offset of this pipeline."""
    OLD_LEADER = "old leader"
    """The log was truncated: the same offsets are now other records."""
    RECREATED_TOPIC = "recreated topic"
    OTHER_CLUSTER = "other cluster"
    OTHER_PIPELINE = "other pipeline"
    """Another pipeline wrote the same offsets to this table."""
    TOO_MANY_PIPELINES = "too many pipelines"
    OTHER_CHECKPOINT = "other checkpoint"
    """The checkpoint with the state of the function is not the one that wrote this table."""
    CHANGED_BATCH = "changed batch"
    """The definition was changed between both parts of a stateful batch: rows and state."""
    HAS_STATE = "has state"
    """The rows are results of a stateful function, or were not so far."""
    FORGOTTEN = "forgotten"
    """The user let the table forget this pipeline."""
    BUSY = "busy"
    """Every attempt conflicted with another commit, or got no response."""


RECREATED_REMEDY: Final = (
    "Its offsets begin anew, so neither a new checkpoint alone nor failOnDataLoss helps. To append "
    "the records of the new topic to the same table, give the pipeline a new pipeline.name and a "
    "new pipeline.checkpoint; or let the table forget the pipeline (`penstock table forget FILE`) "
    "and set a new pipeline.checkpoint. Otherwise set another table.name and a new "
    "pipeline.checkpoint."
)
"""The remedy for a topic that was deleted and created again; a test follows each step."""


class CommitStoppedError(SparkQueryError):
    """The commit was not executed; the table has no part of it."""

    def __init__(self, reason: StopReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Stop:
    """Do not commit, and do not retry: the user must act."""

    reason: StopReason
    text: str

    def error(self) -> CommitStoppedError:
        """Return the stop as an exception."""
        return CommitStoppedError(self.reason, self.text)


def fenced(pipeline: str, epoch: int, owner_epoch: int, owner: str) -> Stop:
    """Return the stop: another driver is the owner."""
    return Stop(
        StopReason.FENCED,
        f"another driver of pipeline '{pipeline}' ({owner}, number {owner_epoch}) acquired the "
        f"table after this one (number {epoch}). This driver committed nothing of this "
        "micro-batch. Stop the driver that should not run; the other one continues.",
    )


def went_back(pipeline: str, epoch: int, owner_epoch: int) -> Stop:
    """Return the stop: the table has lost this driver's notes."""
    return Stop(
        StopReason.WENT_BACK,
        f"this driver acquired the table as number {epoch} of pipeline '{pipeline}', but the table "
        f"records drivers only up to number {owner_epoch}: it was dropped and created again, or "
        "replaced by an older copy. Start the pipeline again with a new checkpoint location: it "
        "continues from the offsets in the table.",
    )


def rolled_back(pipeline: str) -> Stop:
    """Return the stop: the table was rolled back to before this driver's last commit."""
    return Stop(
        StopReason.WENT_BACK,
        f"the table was rolled back while pipeline '{pipeline}' ran: it no longer has records that "
        "this driver committed. Nothing of this micro-batch was committed. Start the pipeline "
        "again: it continues from the offsets in the table, and reads the missing records from "
        "the topic again.",
    )


def gap(pipeline: str, come: Iterable[PartitionRange], held_ends: Iterable[int]) -> Stop:
    """Return the stop: `come` begins after the committed offsets."""
    missing = [
        one._replace(start_offset=held_end, end_offset=one.start_offset)
        for one, held_end in zip(come, held_ends, strict=True)
    ]
    return Stop(
        StopReason.GAP,
        f"pipeline '{pipeline}' has not committed {_named(missing)} to the table, and the next "
        "micro-batch begins after that: the records were deleted from the topic before they were "
        "read, or the micro-batch was not planned for this table. Start the pipeline again: it "
        "continues from the offsets in the table. If the topic no longer has the records, allow "
        'gaps for that start (failOnDataLoss = "false" in [source.options]).',
    )


def gap_in_state(pipeline: str, found: Stop) -> Stop:
    """Return the stop of `gap` for a stateful pipeline, which can pass by no record."""
    text = found.text.partition(" Start the pipeline again")[0]
    return Stop(
        StopReason.GAP,
        f"{text} State cannot pass by records: compute the table again, with another table.name, "
        f"pipeline.name and pipeline.checkpoint than those of '{pipeline}'.",
    )


def before_begin(pipeline: str, come: Iterable[PartitionRange], begins: Iterable[int]) -> Stop:
    """Return the stop: `come` begins before the pipeline's first offset."""
    first = ", ".join(f"{one.at} offset {begin}" for one, begin in zip(come, begins, strict=True))
    return Stop(
        StopReason.BEFORE_BEGIN,
        f"the micro-batch has {_named(come)}, but pipeline '{pipeline}' began in this table at "
        f"{first[:500]}. A stream only reads forward. Start it with a new checkpoint location: it "
        "continues from the offsets in the table. Write the older offsets with a backfill, which "
        "is a pipeline with its own name.",
    )


def old_leader(pipeline: str, come: Iterable[PartitionRange]) -> Stop:
    """Return the stop: the batch's leader epoch is older than that of the committed offsets."""
    return Stop(
        StopReason.OLD_LEADER,
        f"{_named(come)} were written under an older leader than records that pipeline "
        f"'{pipeline}' has committed to the table before: the topic lost records that the table "
        "has, and other records may now have their offsets. Compare the table with the topic. To "
        "continue, delete the rows that the topic no longer has, and give the pipeline a new name.",
    )


def recreated_topic(pipeline: str, topic: str, held_id: str, topic_id: str) -> Stop:
    """Return the stop: the topic has the same name and another id."""
    return Stop(
        StopReason.RECREATED_TOPIC,
        f"topic '{topic}' was deleted and created again (its id was {held_id} and is {topic_id}), "
        f"and the table holds offsets of the old one for pipeline '{pipeline}'. {RECREATED_REMEDY}",
    )


def other_cluster(pipeline: str, held_id: str, cluster_id: str) -> Stop:
    """Return the stop: the brokers belong to another cluster than before."""
    return Stop(
        StopReason.OTHER_CLUSTER,
        f"pipeline '{pipeline}' has filled this table from cluster {held_id}, but now reads from "
        f"cluster {cluster_id}: the same offsets are other records. Check bootstrap_servers. If "
        "the topics have moved permanently, give the pipeline a new name and the offset at which "
        "it should continue.",
    )


def other_pipeline(pipeline: str, other: str, come: Iterable[PartitionRange]) -> Stop:
    """Return the stop: another pipeline has committed these offsets."""
    return Stop(
        StopReason.OTHER_PIPELINE,
        f"{_named(come)} are among the offsets that pipeline '{other}' has committed to this "
        f"table; pipeline '{pipeline}' would write them a second time. If the pipeline was "
        f"renamed, give it its old name '{other}'. If not, name another table, or let this "
        "pipeline read only offsets that the other one does not read.",
    )


ANEW_REMEDY: Final = (
    "Restore the newest copy of the checkpoint. Without one, compute the table again from the "
    "topic: set another table.name, pipeline.name and pipeline.checkpoint, then `penstock table "
    "run FILE`. Its records must still be in the topic."
)
"""The remedy if state and table do not fit: state cannot be computed from the table."""


def other_checkpoint(pipeline: str, problem: str, remedy: str = ANEW_REMEDY) -> Stop:
    """Return the stop: state and table are not of the same batches."""
    return Stop(
        StopReason.OTHER_CHECKPOINT,
        f"the table of the stateful pipeline '{pipeline}' does not fit pipeline.checkpoint: "
        f"{problem}. Nothing was committed, because rows would be missing, doubled or wrong. "
        f"{remedy}",
    )


def changed_batch(pipeline: str, batch: int) -> Stop:
    """Return the stop: an unfinished batch would get its state by another definition."""
    return Stop(
        StopReason.CHANGED_BATCH,
        f"the table has batch {batch} of the stateful pipeline '{pipeline}', and Spark has not "
        "finished it: its records are read once more for the state. Since the commit the sections "
        "`value` or `state`, the topics, or the function were changed, so a record could be in a "
        "total and a bad record, or neither. Nothing was committed. Restore the former definition "
        "and function, run them once (`penstock table run FILE --once`), then change them.",
    )


def has_state(pipeline: str) -> Stop:
    """Return the stop: a pipeline without state wants to append to results with state."""
    return Stop(
        StopReason.HAS_STATE,
        f"pipeline '{pipeline}' has filled this table by a stateful function, and the definition "
        "has none. Restore the section `state` and the function, or set another pipeline.name and "
        "table.name.",
    )


def had_no_state(pipeline: str) -> Stop:
    """Return the stop: a stateful pipeline wants to continue after rows without state."""
    return Stop(
        StopReason.HAS_STATE,
        f"pipeline '{pipeline}' has filled this table without a stateful function, and the "
        "definition has one: it would miss the records before. Set another pipeline.name, "
        "table.name and pipeline.checkpoint.",
    )


def too_many_pipelines(pipeline: str, count_max: int, names: Sequence[str]) -> Stop:
    """Return the stop: the table has its maximum number of notes."""
    return Stop(
        StopReason.TOO_MANY_PIPELINES,
        f"the table records {count_max} pipelines and backfills, which is the limit, and "
        f"'{pipeline}' is not among them. Let it forget a finished one with `penstock table "
        f"forget FILE NAME`; it records {first_of(names, _NAMED_MAX)}.",
    )


def forgotten(pipeline: str) -> Stop:
    """Return the stop: the table forgot this driver's pipeline."""
    return Stop(
        StopReason.FORGOTTEN,
        f"the user let the table forget pipeline '{pipeline}' (`penstock table forget`) while it "
        "ran. Nothing of this micro-batch was committed. If you start the pipeline again with a "
        "new checkpoint, it begins at source.starting_offsets.",
    )


def busy(pipeline: str, attempt_count: int, last: str) -> Stop:
    """Return the stop: every attempt failed."""
    return Stop(
        StopReason.BUSY,
        f"pipeline '{pipeline}' could not commit in {attempt_count} attempts; the last one: "
        f"{last[:500]}. Other writers commit to this table all the time, or its catalog does not "
        "respond. Nothing is lost or duplicated: start the pipeline again when that is over.",
    )


def _named(ranges: Iterable[PartitionRange]) -> str:
    return first_of([str(one) for one in ranges], _NAMED_MAX)
