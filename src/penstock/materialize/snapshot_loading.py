"""`load_snapshot`: fills a new generation from a snapshot directory, and swaps it in at its end.

Guarantees: the snapshot is verified completely before anything is written. Its rows go into a
generation beside the served rows; the transaction that writes its last rows also sets the positions
to V and replaces the served rows. So a crash leaves the old rows or the new ones, never a mix, and
the follower continues at V. A snapshot that does not fit raises `SnapshotError`, and the file is
unchanged: it is of another topic, too old for the log, or newer than the log.

An interrupted load is begun again by the next start with the same option; without it the topic
waits (`is_unfinished`), because the log may not have the rows that are missing. It does NOT fetch.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.client.cluster_view import TopicDescription
from penstock.edge.refresh.manifest import Manifest
from penstock.edge.refresh.snapshot_errors import SnapshotError
from penstock.edge.refresh.snapshot_files import records_of, verified_batches
from penstock.edge.refresh.snapshot_stores import SnapshotStore, load_manifest, open_store
from penstock.materialize.row_store import Portion, RowStore
from penstock.materialize.topic_decisions import StoredTopic

PORTION_BYTES_MAX: Final = 33_554_432
"""Changes of one transaction, before SQLite."""
UNFINISHED: Final = -1
"""Position of a generation whose snapshot is not loaded: no fetch may complete its rows."""


class OpenedSnapshot(NamedTuple):
    """A snapshot whose manifest is valid."""

    store: SnapshotStore
    manifest: Manifest


class LogBounds(NamedTuple):
    """The log of the topic now, by partition."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]


def open_snapshot(place: str) -> OpenedSnapshot:
    """Return the snapshot at a place; `SnapshotError` if there is none."""
    store = open_store(place)
    return OpenedSnapshot(store, load_manifest(store))


def is_unfinished(stored: StoredTopic | None) -> bool:
    """Whether a load of a snapshot did not end."""
    building = None if stored is None else stored.building
    return building is not None and UNFINISHED in building.positions.values()


def check_snapshot(manifest: Manifest, found: TopicDescription, bounds: LogBounds) -> None:
    """Raise `SnapshotError` unless the log of the topic continues the snapshot."""
    name = manifest.topic
    if manifest.topic_id != found.topic_id:
        raise SnapshotError(
            f"the snapshot is of another topic {name!r}: its id is {manifest.topic_id}, the "
            f"cluster has {found.topic_id}",
            hint="Build it again: `penstock refresh build`.",
        )
    for partition, end in manifest.ends.items():
        start, log_end = bounds.starts.get(partition), bounds.ends.get(partition)
        if start is None or log_end is None or end > log_end:
            raise SnapshotError(
                f"the snapshot of {name!r} ends at offset {end} of partition {partition}, the log "
                f"at {log_end}",
                hint="The log was cut or restored; build the snapshot again.",
            )
        if end < start:
            raise SnapshotError(
                f"the snapshot of {name!r} ends at offset {end} of partition {partition}, and the "
                f"log begins at {start}",
                hint="Records between them are missing; build a newer snapshot.",
            )


def load_snapshot(
    store: RowStore,
    snapshot: OpenedSnapshot,
    found: TopicDescription,
    bounds: LogBounds,
    should_stop: Callable[[], bool],
) -> bool:
    """Replace the rows of a topic by a snapshot; False if it was stopped before the end."""
    manifest = snapshot.manifest
    check_snapshot(manifest, found, bounds)
    for partition in manifest.partitions:
        for _ in verified_batches(snapshot.store, partition):
            if should_stop():
                return False
    starts = {**bounds.starts, **dict.fromkeys(manifest.ends, UNFINISHED)}
    store.begin_generation(manifest.topic, found.topic_id, starts, manifest.ends)
    building = store.topics()[manifest.topic].building
    assert building is not None
    return _fill(store, snapshot, building.number, should_stop)


def _fill(
    store: RowStore, snapshot: OpenedSnapshot, generation: int, should_stop: Callable[[], bool]
) -> bool:
    topic, portion = snapshot.manifest.topic, Portion()
    for partition in snapshot.manifest.partitions:
        for batch in verified_batches(snapshot.store, partition):
            if should_stop():
                return False
            portion.of(topic, generation, partition.partition).add(records_of(batch))
            if portion.size_bytes > PORTION_BYTES_MAX:
                store.apply(portion)
                portion = Portion()
    # The positions come with the last rows: this transaction serves the new generation.
    for partition in snapshot.manifest.partitions:
        portion.advance(topic, generation, partition.partition, partition.end_offset)
    store.apply(portion)
    return True
