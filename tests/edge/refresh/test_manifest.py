"""The manifest: round trips, and everything that is not a whole manifest is refused."""

import json
import os
import random
from pathlib import Path
from uuid import UUID

import pytest

from penstock.edge.refresh import manifest as manifest_module
from penstock.edge.refresh.manifest import (
    Manifest,
    SnapshotFile,
    SnapshotPartition,
    read_manifest,
    write_manifest,
)
from penstock.edge.refresh.snapshot_errors import SnapshotError
from penstock.edge.refresh.snapshot_stores import DirectoryStore, load_manifest

NAME = f"{'a' * 32}-0-{'b' * 8}-{0:020d}.log"


def file(name: str = NAME, base_offset: int = 0, records: int = 3) -> SnapshotFile:
    return SnapshotFile(
        name=name, base_offset=base_offset, size_bytes=200, crc32c=7, records=records
    )


def partition(**changes: object) -> SnapshotPartition:
    fields: dict[str, object] = {
        "partition": 0,
        "start_offset": 0,
        "end_offset": 10,
        "records": 3,
        "epochs": ((0, 0), (4, 6)),
        "files": (file(),),
        **changes,
    }
    return SnapshotPartition.model_validate(fields)


def manifest(*partitions: SnapshotPartition) -> Manifest:
    return Manifest(
        format="penstock-refresh",
        version=1,
        id="a" * 32,
        topic="price",
        topic_id=UUID(int=5),
        cluster_id="c",
        created_ms=1,
        partitions=partitions or (partition(),),
    )


def test_a_manifest_is_read_as_it_was_written() -> None:
    empty = partition(partition=1, start_offset=4, end_offset=4, records=0, epochs=(), files=())
    whole = manifest(partition(), empty)
    assert read_manifest(write_manifest(whole)) == whole
    assert whole.ends == {0: 10, 1: 4}
    assert [whole.partitions[0].epoch_at(at) for at in (0, 5, 6, 9)] == [0, 0, 4, 4]
    assert empty.epoch_at(9) == -1


def test_each_changed_byte_is_found() -> None:
    data = write_manifest(manifest())
    dice = random.Random(3)
    for position in dice.sample(range(len(data)), 200):
        changed = bytearray(data)
        changed[position] ^= 1 << dice.randrange(7)
        try:
            found = read_manifest(bytes(changed))
        except SnapshotError:
            continue
        assert found == manifest(), f"byte {position} changed the meaning"


def test_each_shorter_document_is_refused() -> None:
    data = write_manifest(manifest()).rstrip()
    for size in range(len(data)):
        with pytest.raises(SnapshotError):
            read_manifest(data[:size])


WRONG = [
    {"start_offset": 11},
    {"files": ()},
    {"start_offset": 1},
    {"end_offset": 0, "epochs": ()},
    {"records": 4},
    {"epochs": ((4, 6), (0, 0))},
    {"epochs": ((0, 0), (4, 10))},
    {"files": (file(), file())},
    {"files": (file(records=1), file(f"{'a' * 32}-0-{'b' * 8}-{5:020d}.log", 0, 2))},
    {"files": (file(base_offset=10),)},
    {"partition": 1},
]


@pytest.mark.parametrize("changes", WRONG, ids=str)
def test_numbers_that_do_not_fit_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(SnapshotError):
        write_manifest(manifest(partition(**changes)))


def test_names_do_not_leave_the_directory() -> None:
    document = json.loads(write_manifest(manifest()))
    for name in ("../../etc/passwd", "/etc/passwd", f"x/{NAME}", NAME + "\n", "manifest.json"):
        document["partitions"][0]["files"][0]["name"] = name
        del document["checksum"]
        document["checksum"] = manifest_module._checksum(document)
        with pytest.raises(SnapshotError, match="name"):
            read_manifest(json.dumps(document).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"format": "other"}',
        b'{"format": "penstock-refresh", "version": 2}',
        b'{"format": "penstock-refresh", "version": 1}',
    ],
    ids=lambda data: repr(data[:20]),
)
def test_other_documents_are_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        read_manifest(data)


def test_a_manifest_above_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "MANIFEST_BYTES_MAX", 100)
    with pytest.raises(SnapshotError, match="100"):
        read_manifest(write_manifest(manifest()))


def test_a_leader_epoch_leaves_room_for_those_that_follow() -> None:
    highest = ((manifest_module.EPOCH_MAX, 0),)
    whole = manifest(partition(epochs=highest))
    assert read_manifest(write_manifest(whole)) == whole
    with pytest.raises(ValueError, match="less than or equal"):
        partition(epochs=((manifest_module.EPOCH_MAX + 1, 0),))


def test_a_place_without_a_file_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(SnapshotError, match="is not a file"):
        load_manifest(DirectoryStore(tmp_path))
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(SnapshotError, match="is not a file"):
        load_manifest(DirectoryStore(tmp_path))
