"""Snapshots of random logs, compared with a dictionary; stores; bounds."""

import random
from pathlib import Path

import pytest

from penstock.edge.refresh.manifest import SnapshotFile, SnapshotPartition
from penstock.edge.refresh.snapshot_batches import LastOffsets, SnapshotBatches
from penstock.edge.refresh.snapshot_errors import SnapshotError
from penstock.edge.refresh.snapshot_files import records_of, verified_batches
from penstock.edge.refresh.snapshot_stores import (
    ArrowStore,
    DirectoryStore,
    absolute_place,
    load_manifest,
    open_store,
)
from penstock.records.batch import read_header
from penstock.records.crc32c import checksum
from penstock.records.record import Header, Record


def log_of(dice: random.Random) -> list[tuple[Record, int]]:
    """Records with gaps, tombstones, long keys, and rising leader epochs."""
    found, offset, epoch = [], 0, 0
    for _ in range(dice.randrange(60)):
        offset += dice.randrange(1, 4)
        epoch += dice.random() < 0.1
        key = dice.choice((b"", b"k", b"key", b"x" * 16, b"y" * 40))
        value = None if dice.random() < 0.3 else b"v" * dice.randrange(90)
        headers = (Header("h", b"1"),) if dice.random() < 0.2 else ()
        found.append((Record(key, value, headers, dice.randrange(10**12), offset), epoch))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_the_last_value_of_each_key_is_kept_with_its_offset(seed: int) -> None:
    dice = random.Random(seed)
    log = log_of(dice)
    end = (log[-1][0].offset if log else 0) + dice.randrange(1, 5)
    last = LastOffsets()
    last.add(record for record, _ in log)
    made, batches = SnapshotBatches(dice.choice((0, 4)), dice.choice((1, 80, 10_000))), []
    for record, epoch in log:
        if last.is_last(record) and (done := made.add(record, epoch)) is not None:
            batches.append(done)
    batches += made.finish(end, log[-1][1] if log else 0)
    expected: dict[bytes | None, Record] = {}
    for record, _ in log:
        expected.pop(record.key, None)
        if record.value is not None:
            expected[record.key] = record
    epochs = {record.offset: epoch for record, epoch in log}
    found: list[Record] = []
    next_offset = 0
    for one in batches:
        header = read_header(one.data)
        assert next_offset <= header.base_offset <= header.last_offset
        assert (header.next_offset, header.record_count) == (one.next_offset, one.records)
        records = records_in(one.data)
        assert all(header.leader_epoch == epochs[record.offset] for record in records)
        found += records
        next_offset = header.next_offset
    assert next_offset == end
    assert found == sorted(expected.values(), key=lambda record: record.offset)


def records_in(data: bytearray) -> list[Record]:
    from penstock.records.builder import read_records

    return read_records(data)


def test_too_many_keys_are_refused() -> None:
    last = LastOffsets(keys_max=2)
    last.add([Record(b"a", b"1", (), 0, 0), Record(b"b", b"1", (), 0, 1)])
    last.add([Record(b"a", b"2", (), 0, 2), Record(None, b"2", (), 0, 3)])
    assert (len(last), last.keyless) == (2, 1)
    with pytest.raises(SnapshotError, match="more than 2 keys"):
        last.add([Record(b"c", b"1", (), 0, 4)])


def test_a_short_key_is_not_the_digest_of_a_long_one() -> None:
    from hashlib import blake2b

    long_key = b"z" * 40
    digest = blake2b(long_key, digest_size=16).digest()
    last = LastOffsets()
    last.add([Record(long_key, b"1", (), 0, 0), Record(digest, b"2", (), 0, 1)])
    assert len(last) == 2


def written(store: DirectoryStore | ArrowStore, data: bytes) -> SnapshotPartition:
    name = f"{'a' * 32}-0-{'b' * 8}-{0:020d}.log"
    store.prepare()
    with store.create(name) as stream:
        stream.write(data)
    entry = SnapshotFile(
        name=name, base_offset=0, size_bytes=len(data), crc32c=checksum(data), records=2
    )
    return SnapshotPartition(
        partition=0, start_offset=0, end_offset=9, records=2, epochs=((0, 0),), files=(entry,)
    )


def two_records() -> bytes:
    made = SnapshotBatches(0)
    made.add(Record(b"a", b"1", (), 5, 2), 0)
    made.add(Record(b"b", b"2", (), 6, 4), 0)
    return b"".join(one.data for one in made.finish(9, 0))


@pytest.mark.parametrize("kind", ["directory", "arrow"])
def test_both_stores_keep_files_and_replace_the_manifest_in_one_step(
    kind: str, tmp_path: Path
) -> None:
    store: DirectoryStore | ArrowStore = DirectoryStore(tmp_path / "s")
    if kind == "arrow":
        fs = pytest.importorskip("pyarrow.fs")
        store = ArrowStore(fs.LocalFileSystem(), f"{tmp_path}/s/")
    partition = written(store, two_records())
    found = [one for batch in verified_batches(store, partition) for one in records_of(batch)]
    assert [(one.key, one.offset) for one in found] == [(b"a", 2), (b"b", 4)]
    with pytest.raises(SnapshotError, match="no snapshot"):
        load_manifest(store)
    store.publish(b"1")
    store.publish(b"2")
    assert (tmp_path / "s" / "manifest.json").read_bytes() == b"2"
    store.remove(partition.files[0].name)
    store.remove(partition.files[0].name)
    assert store.names() == ["manifest.json"]
    with pytest.raises(SnapshotError, match="missing"):
        list(verified_batches(store, partition))


def test_each_changed_byte_of_a_file_is_found(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    data = two_records()
    partition = written(store, data)
    path = tmp_path / partition.files[0].name
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(SnapshotError):
            list(verified_batches(store, partition))
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(SnapshotError):
            list(verified_batches(store, partition))
    path.write_bytes(data + data)
    with pytest.raises(SnapshotError):
        list(verified_batches(store, partition))


def test_a_length_that_lies_allocates_nothing(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    data = bytearray(two_records())
    data[8:12] = (2**31 - 20).to_bytes(4, "big")
    partition = written(store, bytes(data))
    with pytest.raises(SnapshotError, match="a batch of"):
        list(verified_batches(store, partition))


def test_places_are_paths_or_addresses(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path)), DirectoryStore)
    assert isinstance(open_store(f"file://{tmp_path}"), DirectoryStore)
    assert absolute_place("s3://bucket/x") == "s3://bucket/x"
    assert absolute_place("snapshots") == str(Path.cwd() / "snapshots")
    with pytest.raises(SnapshotError):
        open_store("unknown://x/y")
