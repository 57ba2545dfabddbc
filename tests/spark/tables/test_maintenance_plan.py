"""The maintenance of a table: decided by the clock, by files and by snapshots."""

from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.spark.tables.definition.model import MaintenanceSettings
from penstock.spark.tables.files.maintenance import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    CompactionJob,
    CompactionPlan,
    Due,
    ExpiryJob,
    MaintenancePolicy,
    MaintenanceTimes,
    extents_of,
    may_maintain,
    plan_compaction,
    plan_expiry,
    tiers_of,
    times_after,
    what_is_due,
)
from penstock.spark.tables.files.orphans import (
    ORPHANS_MAX,
    OrphansUnclearError,
    StoredFile,
    orphans_of,
)
from penstock.spark.tables.files.table_facts import LiveFile, Partition, Retention, SnapshotFacts

MIB = 2**20
TARGET = 128 * MIB
POLICY = MaintenancePolicy()
SETTINGS = MaintenanceSettings()
OWN = Retention(is_own=True)
NOW = 1_000 * DAY_MS


def files_of(sizes: list[int], day: str | None = None) -> list[LiveFile]:
    partition: Partition = () if day is None else (("day", day),)
    return [LiveFile(f"{day}-{n}", 1, size, partition) for n, size in enumerate(sizes)]


def planned(files: list[LiveFile], policy: MaintenancePolicy = POLICY) -> CompactionPlan:
    return plan_compaction(files, TARGET, policy, before={}, fruitless={})


# --- Intervals ---


def test_everything_is_due_when_a_driver_starts_and_nothing_right_after() -> None:
    assert what_is_due(MaintenanceTimes(), SETTINGS, POLICY, NOW) == Due(True, True, True)
    assert not what_is_due(MaintenanceTimes(NOW, NOW, NOW), SETTINGS, POLICY, NOW + 1)


@pytest.mark.parametrize(
    ("waited_ms", "due"),
    [
        (10 * MINUTE_MS - 1, Due(False, False, False)),
        (10 * MINUTE_MS, Due(True, False, False)),
        (HOUR_MS, Due(True, True, False)),
        (DAY_MS, Due(True, True, True)),
    ],
)
def test_each_care_has_its_interval(waited_ms: int, due: Due) -> None:
    assert what_is_due(MaintenanceTimes(NOW, NOW, NOW), SETTINGS, POLICY, NOW + waited_ms) == due


def test_what_was_left_is_done_soon() -> None:
    times = MaintenanceTimes(NOW, NOW, NOW, is_left=True)
    assert what_is_due(times, SETTINGS, POLICY, NOW + MINUTE_MS) == Due(True, False, False)


def test_what_failed_is_tried_again_before_its_interval() -> None:
    everything, nothing = Due(True, True, True), Due(False, False, False)
    times = times_after(MaintenanceTimes(), everything, nothing, SETTINGS, POLICY, NOW)
    assert times == MaintenanceTimes(NOW, NOW, NOW)
    times = times_after(MaintenanceTimes(), everything, everything, SETTINGS, POLICY, NOW)
    assert not what_is_due(times, SETTINGS, POLICY, NOW + MINUTE_MS - 1)
    due = what_is_due(times, SETTINGS, POLICY, NOW + MINUTE_MS)
    assert due == Due(compaction=True, expiry=True, orphans=False)
    assert what_is_due(times, SETTINGS, POLICY, NOW + HOUR_MS).orphans
    only = Due(compaction=False, expiry=True, orphans=False)
    kept = times_after(MaintenanceTimes(1, 2, 3), only, nothing, SETTINGS, POLICY, NOW)
    assert kept == MaintenanceTimes(1, NOW, 3)


def test_short_lives_are_looked_at_often() -> None:
    settings = replace(SETTINGS, expire_snapshots_ms=HOUR_MS)
    times = MaintenanceTimes(NOW, NOW, NOW)
    assert not what_is_due(times, settings, POLICY, NOW + 6 * MINUTE_MS - 1)
    assert what_is_due(times, settings, POLICY, NOW + 6 * MINUTE_MS).expiry
    settings = replace(SETTINGS, expire_snapshots_ms=MINUTE_MS)
    assert not what_is_due(times, settings, POLICY, NOW + MINUTE_MS - 1).expiry


def test_a_clock_that_was_set_back_does_not_stop_the_care() -> None:
    assert what_is_due(MaintenanceTimes(NOW, NOW, NOW), SETTINGS, POLICY, NOW - 1)


# --- Expiry ---


def test_old_snapshots_expire_and_the_newest_few_never() -> None:
    old_ms = NOW - SETTINGS.expire_snapshots_ms - 1
    many, few = POLICY.keep_count + 1, POLICY.keep_count
    job = ExpiryJob(NOW - SETTINGS.expire_snapshots_ms, POLICY.keep_count)
    assert expiry_of(SnapshotFacts(many, old_ms)) == (job,)
    assert expiry_of(SnapshotFacts(many, old_ms + 1)) == ()
    assert expiry_of(SnapshotFacts(few, old_ms)) == ()
    assert expiry_of(SnapshotFacts(0, None)) == ()


def expiry_of(facts: SnapshotFacts, retention: Retention = OWN) -> tuple[ExpiryJob, ...]:
    return plan_expiry(facts, SETTINGS, POLICY, retention, NOW)


def test_snapshots_above_the_limit_go_however_young_they_are() -> None:
    """A week of snapshots at a commit every 30 seconds made each commit take 2 s of CPU."""
    young_ms = NOW - 1
    assert expiry_of(SnapshotFacts(SETTINGS.snapshots_max, young_ms)) == ()
    assert expiry_of(SnapshotFacts(SETTINGS.snapshots_max + 1, young_ms)) == (
        ExpiryJob(NOW, SETTINGS.snapshots_max),
    )


def test_the_retention_of_the_table_counts_when_it_is_longer() -> None:
    """Expiry ignored `delta.logRetentionDuration` and `history.expire.*`."""
    week_ms = 7 * SETTINGS.expire_snapshots_ms
    kept = Retention(is_own=True, age_ms_min=week_ms, count_min=5_000)
    facts = SnapshotFacts(6_000, NOW - week_ms - 1)
    assert expiry_of(facts, kept) == (
        ExpiryJob(NOW - week_ms, 5_000),
        ExpiryJob(NOW - week_ms, 5_000),
    )
    assert expiry_of(SnapshotFacts(6_000, NOW - week_ms), kept) == ()
    assert expiry_of(SnapshotFacts(5_000, NOW - week_ms - 1), kept) == ()


def test_expiry_is_due_after_a_tenth_of_the_snapshots_that_are_kept() -> None:
    times = MaintenanceTimes(NOW, NOW, NOW)
    most = SETTINGS.snapshots_max // 10
    assert not what_is_due(times, SETTINGS, POLICY, NOW, most - 1)
    assert what_is_due(times, SETTINGS, POLICY, NOW, most).expiry
    unlimited = MaintenanceSettings(snapshots_max=0)
    assert not what_is_due(times, unlimited, POLICY, NOW, 10**6)


@pytest.mark.parametrize(
    ("is_enabled", "is_own", "expected"),
    [(None, True, True), (None, False, False), (True, False, True), (False, True, False)],
)
def test_a_table_of_another_owner_is_maintained_when_the_definition_asks(
    is_enabled: bool | None, is_own: bool, expected: bool
) -> None:
    assert may_maintain(MaintenanceSettings(is_enabled), Retention(is_own)) is expected


# --- Compaction ---


def test_sizes_grow_by_steps() -> None:
    assert tiers_of(TARGET) == (2 * MIB, 16 * MIB, 128 * MIB)
    assert tiers_of(10 * MIB) == (1_310_720, 10 * MIB)
    assert tiers_of(MIB) == (MIB,)


def test_few_small_files_are_left_alone() -> None:
    assert planned(files_of([10_000] * 7)) == CompactionPlan((), is_left=False)
    assert planned([]) == CompactionPlan((), is_left=False)


def test_enough_small_files_of_one_partition_are_put_together() -> None:
    files = files_of([10_000] * 8, "a") + files_of([10_000] * 7, "b")
    job = CompactionJob(2 * MIB, ((("day", "a"),),))
    assert planned(files) == CompactionPlan((job,), is_left=False)


def worn(deleted: int, size: int = TARGET, rows: int = 100) -> LiveFile:
    return LiveFile("worn", rows - deleted, size, (), deleted)


def test_a_file_with_many_deleted_rows_is_rewritten_whatever_its_size() -> None:
    assert planned([worn(19)]).jobs == ()
    assert planned([worn(20)]).jobs == (CompactionJob(2 * MIB, ((),)),)
    # Small files are merged to their own size, in the same commit.
    files = [worn(20), *files_of([MIB] * 12)]
    assert planned(files).jobs == (CompactionJob(16 * MIB, ((),)),)


def test_a_partition_changes_by_deleted_rows_alone() -> None:
    before, after = extents_of([worn(19)]), extents_of([worn(20)])
    assert plan_compaction([worn(20)], TARGET, POLICY, before={}, fruitless=before).jobs
    assert not plan_compaction([worn(20)], TARGET, POLICY, before={}, fruitless=after).jobs


def test_more_worn_files_than_one_check_rewrites_are_left() -> None:
    assert planned([worn(20, 400 * MIB)] * 2).is_left
    assert not planned([worn(20, 400 * MIB)]).is_left


def test_large_files_are_not_counted() -> None:
    assert planned(files_of([int(TARGET * 0.75)] * 100)).jobs == ()


def test_files_go_to_the_size_that_holds_them_all() -> None:
    assert planned(files_of([MIB] * 20)).jobs == (CompactionJob(TARGET, ((),)),)
    assert planned(files_of([MIB] * 12)).jobs == (CompactionJob(16 * MIB, ((),)),)


def test_new_small_files_do_not_have_a_large_one_written_again() -> None:
    job = planned(files_of([90 * MIB, *[10_000] * 8])).jobs[0]
    assert job.target_bytes == 2 * MIB


def test_a_quiet_partition_gets_its_rest_put_together_once() -> None:
    files = files_of([MIB, 5 * MIB, 90 * MIB])
    before = extents_of(files)
    plan = plan_compaction(files, TARGET, POLICY, before=before, fruitless={})
    assert plan.jobs == (CompactionJob(TARGET, ((),)),)
    assert planned(files).jobs == ()
    in_vain = plan_compaction(files, TARGET, POLICY, before=before, fruitless=before)
    assert in_vain.jobs == ()
    rest = files_of([90 * MIB, 90 * MIB])
    assert plan_compaction(rest, TARGET, POLICY, before=extents_of(rest), fruitless={}).jobs == ()


def test_one_look_does_a_bounded_amount_and_the_worst_first() -> None:
    files = [one for n in range(20) for one in files_of([10_000] * (8 + n), f"{n:02}")]
    plan = planned(files)
    assert plan.is_left
    assert len(plan.jobs[0].partitions) == POLICY.partitions_max
    assert (("day", "19"),) in plan.jobs[0].partitions
    assert (("day", "00"),) not in plan.jobs[0].partitions
    large = [one for n in range(4) for one in files_of([20 * MIB] * 10, str(n))]
    plan = planned(large)
    assert plan.is_left
    assert sum(len(job.partitions) for job in plan.jobs) == 2


def test_one_partition_that_is_more_than_the_bound_is_done_alone() -> None:
    plan = planned(files_of([MIB] * 2_000))
    assert len(plan.jobs) == 1


@pytest.mark.parametrize("batch_bytes", [1_000, 50_000, MIB, 40 * MIB])
def test_in_two_days_a_byte_is_written_a_few_times_and_files_stay_few(batch_bytes: int) -> None:
    """A batch a minute with four files, and a look every ten."""
    sizes: list[int] = []
    written = come = highest = 0
    for minute in range(2 * 24 * 60):
        sizes += [batch_bytes // 4] * 4
        come += batch_bytes
        if minute % 10 != 9:
            continue
        for job in planned(files_of(sizes)).jobs:
            small = [one for one in sizes if one < job.target_bytes * 0.75]
            sizes = [one for one in sizes if one >= job.target_bytes * 0.75]
            written += sum(small)
            whole, rest = divmod(sum(small), job.target_bytes)
            sizes += [job.target_bytes] * whole + [rest] * (rest > 0)
        highest = max(highest, sum(1 for one in sizes if one < TARGET * 0.75))
    assert highest <= 3 * POLICY.files_min + 40
    print(f"{batch_bytes}: written {written / come:.1f} times, {highest} small files")
    # A rest is at most a size of which the rows of a look fill some share.
    assert written / come <= 5 or written / (2 * 24 * 6) <= 2 * MIB, written / come


# --- Orphans ---


def test_orphans_are_old_and_nobody_refers_to_them() -> None:
    stored = [StoredFile(name, time) for name, time in (("a", 1), ("b", 2), ("c", 3), ("d", 9))]
    assert orphans_of(stored, {"b", "d"}, ["d"], 9) == ["a", "c"]
    assert orphans_of(stored, {"b", "d"}, ["d"], 3) == ["a"]


def test_nothing_is_an_orphan_when_the_tables_own_files_are_not_found() -> None:
    stored = [StoredFile("day=a%20b/1", 1)]
    with pytest.raises(OrphansUnclearError, match="day=a b/1"):
        orphans_of(stored, {"day=a b/1"}, ["day=a b/1"], 9)


def test_orphans_are_removed_in_portions_the_oldest_first() -> None:
    stored = [StoredFile(str(n), n) for n in range(ORPHANS_MAX + 5, 0, -1)]
    found = orphans_of(stored, set(), [], 10**9)
    assert len(found) == ORPHANS_MAX
    assert all(int(one) < int(other) for one, other in pairwise(found))
