"""A program that loads a snapshot over old rows and is killed at every SQL statement in turn.

For each number N it forks a child that kills itself (SIGKILL) before its Nth statement, then looks
at the file as the next start would: the served rows are all old, or all new with the positions of
the snapshot. It ends when a child completes the load, and prints the number.
"""

import os
import signal
import sys
import uuid
from pathlib import Path

from penstock.client.cluster_view import PartitionDescription, TopicDescription
from penstock.edge.refresh.manifest import Manifest, SnapshotFile, SnapshotPartition
from penstock.edge.refresh.snapshot_batches import SnapshotBatches
from penstock.edge.refresh.snapshot_stores import DirectoryStore, commit_snapshot
from penstock.materialize import snapshot_loading
from penstock.materialize.row_store import Portion, RowStore
from penstock.materialize.snapshot_loading import LogBounds, load_snapshot, open_snapshot
from penstock.records.crc32c import checksum
from penstock.records.record import Record
from tests.materialize.store_steps import kill_at
from tests.materialize.topic_model import stored_positions, stored_rows

TOPIC_ID = uuid.UUID(int=1)
END = 40
TOPIC = TopicDescription(
    "price",
    TOPIC_ID,
    is_internal=False,
    partitions={at: PartitionDescription(1, 0) for at in (0, 1)},
)
BOUNDS = LogBounds({0: 0, 1: 0}, {0: 50, 1: 50})


def write_snapshot(place: Path) -> None:
    """Write a snapshot of two partitions, in several batches."""
    store = DirectoryStore(place)
    store.prepare()
    parts = []
    for partition in (0, 1):
        made = SnapshotBatches(0, 100)
        done = [
            made.add(Record(b"k%d" % offset, b"new", (), 1, offset), 0)
            for offset in range(10, END, 3)
        ]
        batches = [one for one in done if one is not None] + made.finish(END, 0)
        data = b"".join(one.data for one in batches)
        name = f"{'a' * 32}-{partition}-{'b' * 8}-{0:020d}.log"
        with store.create(name) as file:
            file.write(data)
        count = sum(one.records for one in batches)
        file_entry = SnapshotFile(
            name=name, base_offset=0, size_bytes=len(data), crc32c=checksum(data), records=count
        )
        parts.append(
            SnapshotPartition(
                partition=partition,
                start_offset=0,
                end_offset=END,
                records=count,
                epochs=((0, 0),),
                files=(file_entry,),
            )
        )
    manifest = Manifest(
        format="penstock-refresh",
        version=1,
        id="a" * 32,
        topic="price",
        topic_id=TOPIC_ID,
        cluster_id="c",
        created_ms=1,
        partitions=tuple(parts),
    )
    commit_snapshot(store, manifest)


def write_old(path: Path) -> None:
    """Create the file with its old rows."""
    store = RowStore.open(path)
    store.begin_topic("price", TOPIC_ID, {0: 0, 1: 0}, ())
    portion = Portion()
    for partition in (0, 1):
        portion.of("price", 1, partition).add([Record(b"old", b"row", (), 1, 3)])
        portion.advance("price", 1, partition, 4)
    store.apply(portion)
    store.close()


def load(path: Path, place: Path) -> None:
    """Load the snapshot."""
    snapshot_loading.PORTION_BYTES_MAX = 500  # type: ignore[misc]
    store = RowStore.open(path)
    assert load_snapshot(store, open_snapshot(str(place)), TOPIC, BOUNDS, lambda: False)
    store.close()


def check(path: Path) -> bool:
    """Compare the served rows; return whether they are the new ones."""
    RowStore.open(path).close()
    rows, positions = stored_rows(path, "price"), stored_positions(path, "price")
    keys = {key for key, _ in rows}
    if positions == {0: 4, 1: 4}:
        assert keys == {b"old"}, "a build was served before it was complete"
        return False
    assert positions == {0: END, 1: END}
    assert keys == {b"k%d" % offset for offset in range(10, END, 3)}
    assert len(rows) == 20
    return True


def main(folder: Path) -> None:
    place = folder / "snapshot"
    write_snapshot(place)
    number = swaps = 0
    while True:
        number += 1
        path = folder / f"{number}" / "x.sqlite"
        write_old(path)
        child = os.fork()
        if child == 0:
            kill_at(number)
            load(path, place)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        swaps += check(path)
        # The next start with the option loads it again, whatever was left.
        load(path, place)
        assert check(path)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert swaps
    print(number)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
