"""The plan of a query with leases: the leases that it accepts, and what it does without a lease."""

import logging
from pathlib import Path

import pytest

from penstock.core.types import TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.planning import OffsetRange, SealedSplit
from penstock.spark.sealed import sealed_segments
from penstock.spark.sealed.sealed_options import SealedOptions, SegmentsUse, read_sealed_options
from penstock.spark.sealed.sealed_segments import Known, SealedSegmentsError
from penstock.spark.source.options import Mode, read_source_options
from tests.spark.sealed.log_world import CLUSTER, TOPIC_ID_TEXT, LogWorld
from tests.storage.logs import sync

KNOWN = Known(TOPIC_ID_TEXT, 0)


@pytest.fixture
def world(tmp_path: Path) -> LogWorld:
    found = LogWorld(tmp_path)
    found.fill(60)
    found.settle(is_commit=True)
    return found


def split_count(plan: list[tuple[OffsetRange, SealedSplit | None]]) -> int:
    return sum(split is not None for _, split in plan)


@pytest.mark.parametrize(
    ("changes", "known", "reason"),
    [
        ({"cluster_id": "other"}, KNOWN, "cluster other"),
        ({"topic_id": "other"}, KNOWN, "another topic"),
        ({}, Known(TOPIC_ID_TEXT, 1), "another broker leads it"),
        ({"id": "0" * 32}, KNOWN, "segments.path"),
        ({"id": "nonsense"}, KNOWN, "malformed"),
    ],
)
def test_a_lease_of_another_log_is_not_read(
    world: LogWorld,
    changes: dict[str, object],
    known: Known,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = world.whole()
    segments = world.segments(changes=changes)
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        plan = segments.plan([whole], {whole.at: known}, CLUSTER, {})
    assert split_count(plan) == 0
    assert next(one for one, _ in plan).from_offset == whole.from_offset
    assert reason in caplog.text
    only = world.segments(use=SegmentsUse.ONLY, changes=changes)
    with pytest.raises(SealedSegmentsError, match="Set it to auto"):
        only.plan([whole], {whole.at: known}, CLUSTER, {})


def test_a_lease_that_is_not_trusted_is_released(world: LogWorld) -> None:
    whole = world.whole()
    world.segments(changes={"cluster_id": "other"}).plan([whole], {whole.at: KNOWN}, CLUSTER, {})
    assert world.book.notes() == []


def test_each_plan_ends_the_leases_of_the_last_one(world: LogWorld) -> None:
    whole = world.whole()
    segments = world.segments()
    for _ in range(3):
        assert split_count(segments.plan([whole], {whole.at: KNOWN}, CLUSTER, {})) > 1
        assert len(world.book.notes()) == 1
    segments.release()
    assert world.book.notes() == []


def test_a_partition_that_is_not_leased_is_fetched(world: LogWorld) -> None:
    whole = world.whole()
    other = OffsetRange(TopicPartition("orders", 5), 0, 40)
    known = {whole.at: KNOWN, other.at: KNOWN}
    plan = world.segments().plan([whole, other], known, CLUSTER, {other.at: 1.0})
    assert [one for one, split in plan if split is None] == [other]


def test_a_new_topic_without_sealed_segments_is_fetched(tmp_path: Path) -> None:
    world = LogWorld(tmp_path)
    world.append(world._batch(0))
    sync(world.manager)
    whole = OffsetRange(world.whole().at, 0, 1)
    for use in (SegmentsUse.AUTO, SegmentsUse.ONLY):
        plan = world.segments(use=use).plan([whole], {whole.at: KNOWN}, CLUSTER, {})
        assert plan == [(whole, None)]
    assert world.book.notes() == []


@pytest.mark.parametrize("has_some", [False, True])
def test_skipped_partitions_are_named(
    world: LogWorld, caplog: pytest.LogCaptureFixture, *, has_some: bool
) -> None:
    whole = world.whole()
    changes: dict[str, object] = {
        "skipped": [{"partition": 0, "code": "NOT_LED", "reason": "another broker leads it"}]
    }
    if not has_some:
        changes |= {"id": "", "partitions": []}
    auto = world.segments(changes=changes)
    with caplog.at_level(logging.INFO, "penstock.spark"):
        for _ in range(2):
            assert bool(split_count(auto.plan([whole], {whole.at: KNOWN}, CLUSTER, {}))) is has_some
    assert caplog.text.count("another broker leads it") == 1
    auto.release()
    only = world.segments(use=SegmentsUse.ONLY, changes=changes)
    with pytest.raises(SealedSegmentsError, match="another broker leads it"):
        only.plan([whole], {whole.at: KNOWN}, CLUSTER, {})
    assert has_some is False or world.book.notes() == []


def test_a_plan_that_fails_releases_its_leases(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_given: object) -> None:
        raise MemoryError

    monkeypatch.setattr(sealed_segments, "in_starting_order", failing)
    whole = world.whole()
    with pytest.raises(MemoryError):
        world.segments().plan([whole], {whole.at: KNOWN}, CLUSTER, {})
    assert world.book.notes() == []


def test_records_deleted_before_the_lease_are_left_to_fetch(world: LogWorld) -> None:
    """The first leased segment still has them: DeleteRecords moves the log start only."""
    whole = world.whole()
    start = world.log.segments[1].base_offset + 2
    world.log.advance_start(start)
    plan = world.plan(whole)
    fetched = [one for one, split in plan if split is None]
    assert (fetched[0].from_offset, max(one.until_offset for one in fetched)) == (0, start)
    rows = world.by_files([one for one in plan if one[1] is not None])
    assert rows == world.by_fetch(whole._replace(from_offset=start))


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"segments": "always"}, "segments"),
        ({"segments": "only"}, "segments"),
        ({"segments.path": "/data"}, "segments.path"),
        ({"segments.url": "127.0.0.1:8080"}, "segments.url"),
        ({"segments.url": "ftp://127.0.0.1"}, "segments.url"),
        ({"segments.url": "http://"}, "segments.url"),
        ({"segments.url": "http://a:b@c:1"}, "segments.url"),
        ({"segments.url": "http://c:99999"}, "segments.url"),
        ({"segments.url": "http://c:0"}, "segments.url"),
        ({"segments.url": "http://c/?x=1"}, "segments.url"),
        ({"segments.url": "http://c d"}, "segments.url"),
        ({"segments.url": "http://[c"}, "segments.url"),
        ({"segments.url": "http://c", "segments.path": "data"}, "segments.path"),
        ({"segments.url": "http://c", "segments.path": "/data/../etc"}, "segments.path"),
        ({"segments.url": "http://c", "segments.path": "/data\0"}, "segments.path"),
    ],
)
def test_wrong_options_name_themselves(given: dict[str, str], wrong: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_sealed_options(given, cuts_by_records=False)
    assert caught.value.option == wrong


def test_the_options_of_a_query() -> None:
    common = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "segments.url": "http://c:8080"}
    batch = read_source_options({**common, "segments": "ONLY"}, Mode.BATCH)
    assert batch.sealed == SealedOptions(SegmentsUse.ONLY, "http://c:8080", None)
    assert not batch.warnings
    with pytest.raises(OptionError, match="a stream reads its newest records"):
        read_source_options({**common, "segments": "only"}, Mode.STREAM)
    by_records = {**common, "maxRecordsPerPartition": "10"}
    assert not read_source_options(by_records, Mode.BATCH).sealed.is_on
    with pytest.raises(OptionError, match="split by bytes"):
        read_source_options({**by_records, "segments": "only"}, Mode.BATCH)
    plain = read_source_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, Mode.BATCH)
    assert plain.sealed == SealedOptions()
    assert not plain.sealed.is_on
    off = read_source_options({**common, "segments": "off"}, Mode.BATCH)
    assert not off.sealed.is_on
