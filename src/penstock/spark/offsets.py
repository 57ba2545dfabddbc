"""The offset document of a stream: Spark stores one in the checkpoint for each micro-batch (pure).

    {"version": 1,
     "cluster_id": "MkU3OEVBNTcwNTJENDM2Qg",
     "topics": {"orders": {"topic_id": "cu1-…", "partitions": {"0": {"offset": 42,
                                                                     "leader_epoch": 3}}}},
     "begins": {"orders": {"0": 17}},
     "is_initial": true}

An offset alone does not identify its log. The ids of cluster and topic show that a checkpoint
belongs to another cluster, or to a topic that was deleted and created again; the leader epoch shows
that a log was truncated and has grown again since. An unknown id or epoch is left out and not
checked.

`begins` has the partitions in which this batch does not begin at the end of the last batch. These
are all partitions in the first batch, and later new partitions, recreated topics and truncated
logs. Spark requests the initial offset again when it repeats a failed first batch, and by then
"latest" has moved. With `begins` the repeated batch reads the same offsets as before.

A document of Spark's own Kafka source, {"orders": {"0": 42}}, is accepted too: a query can migrate
with its checkpoint. Equal offsets have equal texts; Spark compares the texts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.core.types import TopicPartition
from penstock.spark.errors import CheckpointError
from penstock.spark.partition_json import (
    PartitionFormError,
    numbers_of,
    object_of,
    text_of,
    write_numbers,
)

VERSION: Final = 1
NO_EPOCH: Final = -1

_REMEDY: Final = (
    "Restore the checkpoint from a copy, or start the query with a new checkpoint location and "
    "startingOffsets set to where it should go on."
)


class PartitionPosition(NamedTuple):
    """The next offset to read, and the epoch up to which the records before it were written."""

    offset: int
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position in every partition of a stream."""

    positions: Mapping[TopicPartition, PartitionPosition]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The known ids."""
    cluster_id: str | None = None
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_initial: bool = False
    """Whether this is the start of a query; it ends no batch."""

    def topics(self) -> set[str]:
        """Every topic that has a partition here."""
        return {at.topic for at in self.positions}


def write_offset(offset: StreamOffset) -> dict[str, Any]:
    """Return the document of a position."""
    topics: dict[str, dict[str, Any]] = {}
    for at in sorted(offset.positions):
        topic = topics.setdefault(at.topic, _topic_document(at.topic, offset.topic_ids))
        position = offset.positions[at]
        partition = {"offset": position.offset}
        if position.leader_epoch != NO_EPOCH:
            partition["leader_epoch"] = position.leader_epoch
        topic["partitions"][str(at.partition)] = partition
    document: dict[str, Any] = {"version": VERSION}
    if offset.cluster_id is not None:
        document["cluster_id"] = offset.cluster_id
    document["topics"] = topics
    if offset.begins:
        document["begins"] = write_numbers(offset.begins)
    if offset.is_initial:
        document["is_initial"] = True
    return document


def read_offset(document: Mapping[str, Any]) -> StreamOffset:
    """Return the position in a document; raise `CheckpointError` for any other document."""
    if not isinstance(document, dict):
        raise _damaged("it is not a JSON object")
    version = document.get("version")
    try:
        if not isinstance(version, int):
            # Offsets of Spark's own Kafka source: topics, partitions, offsets, and nothing else.
            offsets = numbers_of(document, 0)
            return StreamOffset({at: PartitionPosition(n) for at, n in offsets.items()})
        if version > VERSION:
            raise CheckpointError(
                f"the checkpoint has offsets of version {version}, and this Penstock reads "
                f"versions up to {VERSION}. Run the query with the newer Penstock that wrote it."
            )
        return _read_version_1(document)
    except PartitionFormError as error:
        raise _damaged(str(error)) from None


def _read_version_1(document: Mapping[str, Any]) -> StreamOffset:
    topics = object_of(document.get("topics"), "topics")
    offsets: dict[str, dict[str, Any]] = {}
    epochs: dict[str, dict[str, Any]] = {}
    topic_ids = {}
    for name, value in topics.items():
        topic = object_of(value, name)
        if "topic_id" in topic:
            topic_ids[name] = text_of(topic["topic_id"], "topic_id")
        partitions = object_of(topic.get("partitions"), f"partitions of {name}")
        entries = {index: object_of(entry, name) for index, entry in partitions.items()}
        offsets[name] = {index: entry.get("offset") for index, entry in entries.items()}
        epochs[name] = {index: entry.get("leader_epoch", -1) for index, entry in entries.items()}
    known_epochs = numbers_of(epochs, NO_EPOCH)
    cluster_id = document.get("cluster_id")
    return StreamOffset(
        {
            at: PartitionPosition(offset, known_epochs[at])
            for at, offset in numbers_of(offsets, 0).items()
        },
        topic_ids,
        None if cluster_id is None else text_of(cluster_id, "cluster_id"),
        numbers_of(object_of(document.get("begins", {}), "begins"), 0),
        document.get("is_initial") is True,
    )


def _topic_document(name: str, topic_ids: Mapping[str, str]) -> dict[str, Any]:
    known = {"topic_id": topic_ids[name]} if name in topic_ids else {}
    return {**known, "partitions": {}}


def _damaged(problem: str) -> CheckpointError:
    return CheckpointError(f"an offset in the checkpoint cannot be read: {problem}. {_REMEDY}")
