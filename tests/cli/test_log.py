"""`penstock log dump`: lines, JSON lines and the exit code."""

import json
from pathlib import Path
from struct import pack

from penstock.records.builder import build_batch
from penstock.records.control import Marker, build_marker
from penstock.records.record import Header, Record
from tests.cli.conftest import Penstock


def segment(folder: Path, *, damage: bool = False) -> str:
    records = [
        Record(b"k", b"v1", (Header("h", b"x"),), 1_714_564_800_000),
        Record(None, b"\xff\n", (), 1_714_564_800_001),
        Record(None, None, (), 1_714_564_800_002),
    ]
    data = build_batch(records, codec=1, producer_id=9, producer_epoch=0, base_sequence=0)
    if damage:
        data[70] ^= 1
    marker = build_marker(
        Marker(is_commit=False, coordinator_epoch=1),
        producer_id=9,
        producer_epoch=0,
        timestamp_ms=0,
        base_offset=3,
    )
    path = folder / "00000000000000000000.log"
    path.write_bytes(data + marker)
    return str(path)


def test_a_segment_as_lines(penstock: Penstock, tmp_path: Path) -> None:
    path = segment(tmp_path)
    outcome = penstock("log", "dump", path)
    lines = outcome.output.splitlines()
    assert outcome.code == 0
    assert lines[0].startswith("batch at 0: offsets 0-2, 3 records, ")
    assert "gzip" in lines[0]
    assert "producer 9 epoch 0 sequence 0" in lines[0]
    assert lines[1] == "  0  2024-05-01T12:00:00.000Z  key k  v1  headers h=x"
    assert lines[2] == "  1  2024-05-01T12:00:00.001Z  \\\\xff\\n"
    assert lines[3].endswith("null")
    assert lines[4].endswith("transactional, abort marker")
    assert lines[-1] == f"{path}: 2 batches, 4 records, no damage"


def test_a_segment_as_json(penstock: Penstock, tmp_path: Path) -> None:
    outcome = penstock("log", "dump", "--json", segment(tmp_path))
    documents = [json.loads(line) for line in outcome.output.splitlines()]
    kinds = [document["type"] for document in documents]
    assert kinds == ["batch", "record", "record", "record", "batch", "record", "summary"]
    assert documents[0]["codec"] == "gzip"
    assert documents[0]["control"] is None
    assert documents[2]["value_base64"] == "/wo="
    assert documents[4]["control"] == "abort"
    assert documents[-1]["damages"] == 0


def test_batches_only_and_quiet(penstock: Penstock, tmp_path: Path) -> None:
    path = segment(tmp_path)
    assert len(penstock("log", "dump", "--batches", path).output.splitlines()) == 3
    assert len(penstock("log", "dump", "--quiet", path).output.splitlines()) == 1


def test_damage_is_exit_1(penstock: Penstock, tmp_path: Path) -> None:
    outcome = penstock("log", "dump", "--quiet", segment(tmp_path, damage=True))
    assert outcome.code == 1
    assert outcome.output.startswith("DAMAGE at byte 0: checksum")
    assert "damage was found" in outcome.errors
    as_json = penstock("log", "dump", "--json", "--quiet", segment(tmp_path, damage=True))
    assert as_json.code == 1
    assert json.loads(as_json.output.splitlines()[0])["type"] == "damage"


def test_indexes(penstock: Penstock, tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000100.index"
    index.write_bytes(pack(">ii", 3, 4096))
    times = tmp_path / "00000000000000000100.timeindex"
    times.write_bytes(pack(">qi", 5000, 2))
    outcome = penstock("log", "dump", str(index), str(times))
    assert outcome.code == 0
    assert outcome.output.splitlines() == [
        "offset 103  position 4096",
        f"{index}: 1 entries, no damage",
        "offset 102  timestamp_ms 5000",
        f"{times}: 1 entries, no damage",
    ]


def test_what_is_no_log_file(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    outcome = penstock("log", "dump", str(path))
    assert outcome.code == 1
    assert "Give a .log, .index or .timeindex file." in outcome.errors
