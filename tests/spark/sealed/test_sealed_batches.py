"""Leased files that vanish, shrink or are damaged while they are read: no wrong row is returned."""

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.errors import CorruptBatchError, PenstockError
from penstock.spark.planning import OffsetRange, SealedPart, SealedSplit
from penstock.spark.sealed import sealed_batches
from penstock.spark.sealed.sealed_batches import SealedBatches, SealedGoneError
from tests.spark.sealed.log_world import LogWorld, Row, decoder_of, rows_of
from tests.storage.leases.leasing import run


class Scene:
    """A log with a plan that has one split of all its files."""

    def __init__(self, path: Path) -> None:
        self.world = LogWorld(path)
        self.world.fill(80)
        self.world.settle(is_commit=True)
        self.whole = self.world.whole()
        self.expected = self.world.by_fetch(self.whole)
        self.range, found = self.world.plan(self.whole, bytes_max=1 << 30)[0]
        assert found is not None
        assert len(found.parts) > 4
        self.split: SealedSplit = found

    def read(self, break_after: int | None, cut: int | None = None) -> tuple[list[Row], int]:
        """The rows until the lease ends after a number of chunks, and the next offset."""
        decoder = decoder_of(self.range, is_committed=True)
        batches: list[pa.RecordBatch] = []

        def read() -> None:
            for number, chunk in enumerate(SealedBatches(self.split, 500)):
                batches.extend(decoder.feed(chunk.data, chunk.aborted))
                if number == break_after:
                    run(self.world.book.break_all([self.whole.at]))
                if number == cut:
                    part = Path(self.split.parts[-1].path)
                    part.write_bytes(part.read_bytes()[:100])

        with pytest.raises(SealedGoneError):
            read()
        return rows_of([*batches, *decoder.finish()]), decoder.next_offset


@pytest.mark.parametrize("break_after", [0, 1, 5])
def test_a_lease_that_ends_is_noticed_and_fetch_continues(tmp_path: Path, break_after: int) -> None:
    scene = Scene(tmp_path)
    rows, next_offset = scene.read(break_after)
    assert 0 < len(rows) < len(scene.expected)
    rest = OffsetRange(scene.whole.at, next_offset, scene.whole.until_offset)
    assert rows + scene.world.by_fetch(rest) == scene.expected


def test_a_file_that_is_shorter_than_leased_is_noticed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    rows, next_offset = scene.read(None, cut=0)
    assert rows == [row for row in scene.expected if row["offset"] < next_offset]


def test_a_file_that_replaced_another_is_not_read(tmp_path: Path) -> None:
    """The same name and other bytes: the open file is the one that was leased."""
    scene = Scene(tmp_path)
    path = Path(scene.split.parts[0].path)
    chunks = iter(SealedBatches(scene.split, 200))
    next(chunks)
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)
    with pytest.raises(SealedGoneError, match="another file"):
        next(chunks)


def test_without_the_check_of_the_name_changed_bytes_are_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard removed: the broker ends the lease, then changes the file."""
    scene = Scene(tmp_path)
    path = Path(scene.split.parts[0].path)

    def read() -> None:
        chunks = iter(SealedBatches(scene.split, 200))
        next(chunks)
        held = path.open("r+b")
        run(scene.world.book.break_all([scene.whole.at]))
        held.seek(200)
        held.write(b"\x00" * 400)
        held.close()
        next(chunks)

    with pytest.raises(SealedGoneError):
        read()
    scene = Scene(tmp_path / "again")
    path = Path(scene.split.parts[0].path)
    monkeypatch.setattr(sealed_batches, "_require_name", lambda *_given: None)
    with pytest.raises(CorruptBatchError):
        read()


@pytest.mark.parametrize("position", [0, 3, 6, 7, 8, 16, 17, 23, 26, 60, 70])
def test_damaged_bytes_are_an_error(tmp_path: Path, position: int) -> None:
    """Offset, length, magic, checksum, count, records: never wrong rows."""
    scene = Scene(tmp_path)
    path = Path(scene.split.parts[1].path)
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)
    decoder = decoder_of(scene.range, is_committed=True)
    batches: list[pa.RecordBatch] = []

    def read() -> None:
        for chunk in SealedBatches(scene.split, 500):
            batches.extend(decoder.feed(chunk.data, chunk.aborted))

    with pytest.raises(PenstockError):
        read()
    rows = rows_of([*batches, *decoder.finish()])
    assert rows == scene.expected[: len(rows)]


@pytest.mark.parametrize(
    ("begin", "end", "error"),
    [(1, 500, CorruptBatchError), (0, 40, CorruptBatchError), (0, 1 << 40, SealedGoneError)],
)
def test_wrong_positions_are_an_error(
    tmp_path: Path, begin: int, end: int, error: type[Exception]
) -> None:
    scene = Scene(tmp_path)
    path = scene.split.parts[0].path
    with pytest.raises(error):
        list(SealedBatches(SealedSplit((SealedPart(path, begin, end, 0, 1_000),), ()), 1 << 16))


def test_a_missing_file_is_a_lease_that_ended(tmp_path: Path) -> None:
    split = SealedSplit((SealedPart(str(tmp_path / "none.log"), 0, 10, 0, 5),), ())
    with pytest.raises(SealedGoneError, match="cannot be opened"):
        list(SealedBatches(split))


def test_batches_larger_than_a_chunk_are_read_whole(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    sizes = [len(chunk.data) for chunk in SealedBatches(scene.split, 70)]
    assert sum(sizes) == sum(part.end - part.begin for part in scene.split.parts)
    assert max(sizes) > 70
