"""Leased files and Fetch give the same records, one by one, for logs of every kind.

Codecs, nulls, headers, transactions of three producers that overlap segments and end behind them,
compacted logs with gaps, a deleted start: all drawn from a seed, with splits of a few batches.
"""

from pathlib import Path

import pytest

from penstock.spark.planning import OffsetRange, Splitting
from penstock.spark.sealed import sealed_segments
from penstock.spark.sealed.lease_answers import AbortedSpan
from penstock.spark.sealed.sealed_batches import SealedBatches
from penstock.storage.leases import lease_rules
from penstock.storage.log.log_settings import LogSettings
from tests.spark.sealed.log_world import COMPACTED, SETTINGS, LogWorld
from tests.storage.logs import sync


def assert_same(world: LogWorld, wanted: OffsetRange, *, is_committed: bool) -> int:
    """Compare both ways; return the number of splits."""
    expected = world.by_fetch(wanted, is_committed=is_committed)
    splits = 0
    for bytes_max in (300, 3_000, 1 << 30):
        plan = world.plan(wanted, is_committed=is_committed, bytes_max=bytes_max)
        covered = sorted((one.from_offset, one.until_offset) for one, _ in plan)
        assert [begin for begin, _ in covered[1:]] == [end for _, end in covered[:-1]]
        assert (covered[0][0], covered[-1][1]) == wanted[1:]
        assert [one for one, _ in plan] == sorted(one for one, _ in plan)
        assert world.by_files(plan, is_committed=is_committed) == expected
        splits = max(splits, sum(split is not None for _, split in plan))
    return splits


@pytest.mark.parametrize("settings", [SETTINGS, COMPACTED], ids=["deleted", "compacted"])
@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_same_records(
    tmp_path: Path, seed: int, settings: LogSettings, *, is_committed: bool
) -> None:
    world = LogWorld(tmp_path, settings, seed)
    world.fill(120)
    world.settle()
    if settings.compacts:
        size = sum(segment.size for segment in world.log.segments)
        world.compact()
        assert sum(segment.size for segment in world.log.segments) < size
    world.fill(20)
    whole = world.whole(is_committed=is_committed)
    assert len(world.log.segments) > 4
    assert assert_same(world, whole, is_committed=is_committed) > 4
    draw = world.draw
    for _ in range(8):
        begin = draw.randrange(whole.from_offset, whole.until_offset)
        end = draw.randrange(begin + 1, whole.until_offset + 1)
        assert_same(world, OffsetRange(whole.at, begin, end), is_committed=is_committed)


@pytest.mark.parametrize("codec", range(5))
def test_each_codec(tmp_path: Path, codec: int) -> None:
    world = LogWorld(tmp_path, seed=codec)
    world.fill(60, codecs=(codec,))
    world.settle(is_commit=True)
    assert assert_same(world, world.whole(), is_committed=True) > 2


def test_a_deleted_start(tmp_path: Path) -> None:
    """The first leased segment begins before the log does; then it is deleted, and leased only."""
    world = LogWorld(tmp_path)
    world.fill(80)
    world.settle()
    world.log.advance_start(world.log.segments[2].base_offset + 3)
    whole = world.whole()
    assert assert_same(world, whole, is_committed=True) > 2
    expected, plan = world.by_fetch(whole), world.plan(whole)
    world.manager.run_retention(0)
    world.log.advance_start(world.log.active.base_offset)
    assert world.manager.run_retention(0) > 1
    assert all(split is not None for _, split in plan)
    assert world.by_files(plan) == expected, "the lease holds the files"


def test_compaction_while_files_are_read(tmp_path: Path) -> None:
    world = LogWorld(tmp_path, COMPACTED)
    world.fill(80)
    world.settle()
    whole = world.whole()
    expected, plan = world.by_fetch(whole), world.plan(whole)
    world.compact()
    assert world.by_fetch(whole) != expected
    assert world.by_files(plan) == expected


def test_an_index_that_is_wrong_is_not_used(tmp_path: Path) -> None:
    """Entries are compared with the batches: the splits are larger, and the rows are right."""
    world = LogWorld(tmp_path)
    world.fill(80)
    world.settle()
    whole = world.whole()
    expected = world.by_fetch(whole)
    honest = world.plan(whole, bytes_max=300)
    for number, name in enumerate(sorted(tmp_path.glob("orders-0/*.index"))):
        data = name.read_bytes()
        damaged = [
            data[:-3] + b"\xff\xff\xff",
            bytes(len(data)),
            b"\xff" * len(data),
            b"".join(
                data[at : at + 4] + (int.from_bytes(data[at + 4 : at + 8]) + 7).to_bytes(4, "big")
                for at in range(0, len(data), 8)
            ),
            b"",
            data[:-3],
        ]
        name.write_bytes(damaged[number % len(damaged)])
    plan = world.plan(whole, bytes_max=300)
    assert world.by_files(plan) == expected
    assert 1 < len(plan) < len(honest)


def test_without_transaction_indexes_aborted_records_appear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard removed: the comparison must see it."""
    world = LogWorld(tmp_path, seed=3)
    world.fill(120)
    world.settle()
    monkeypatch.setattr(sealed_segments, "aborted_within", lambda *_given: ())
    with pytest.raises(AssertionError):
        assert_same(world, world.whole(), is_committed=True)


def test_markers_before_a_chunk_that_are_named_again_drop_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard removed: a producer that aborted before would stay aborted."""
    world = LogWorld(tmp_path, seed=3)
    world.fill(160)
    world.settle(is_commit=True)

    def all_of_them(self: SealedBatches, _found: object) -> tuple[AbortedSpan, ...]:
        return tuple(AbortedSpan(*one) for one in self._split.aborted)

    monkeypatch.setattr(SealedBatches, "_aborted", all_of_them)
    with pytest.raises(AssertionError):
        assert_same(world, world.whole(), is_committed=True)


def test_undecided_records_appear_without_the_bound_of_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard removed: a lease beyond the last stable offset has records that are undecided."""
    world = LogWorld(tmp_path)
    world.fill(30)
    world.settle(is_commit=True)
    world.fill(1)
    while not world._open:
        world.fill(1)
    for _ in range(40):
        world.append(world._batch(0))
    sync(world.manager)
    bound = world.stable_offset
    honest = world.grant([OffsetRange(world.whole().at, 0, 1 << 40)])
    assert honest.partitions[0].segments[-1].next_offset <= bound
    original = lease_rules.leased_spans

    def beyond(spans: object, wish: object, start: int) -> object:
        return original(spans, wish._replace(stable_offset=lambda: 1 << 40), start)  # type: ignore[attr-defined,arg-type]

    monkeypatch.setattr("penstock.storage.leases.lease_book.leased_spans", beyond)
    unbound = world.grant([OffsetRange(world.whole().at, 0, 1 << 40)])
    assert unbound.partitions[0].segments[-1].next_offset > bound


def test_minimum_partitions_make_smaller_splits(tmp_path: Path) -> None:
    world = LogWorld(tmp_path)
    world.fill(100)
    world.settle(is_commit=True)
    whole = world.whole()
    counts = []
    for minimum in (None, 4, 12):
        segments = world.segments(splitting=Splitting(partitions_min=minimum))
        known = {whole.at: sealed_segments.Known(None, 0)}
        counts.append(len(segments.plan([whole], known, None, {})))
        segments.release()
    assert counts[0] < 4 <= counts[1] < 12 <= counts[2]
    assert world.book.notes() == []
