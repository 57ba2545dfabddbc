"""The maintenance that a table needs, decided from its files and snapshots (pure).

Three tasks, each with its own interval, so that most batches cost only a check of the clock:

- Compaction. Files of a partition grow through three sizes: a 64th of the target, an eighth, the
  target. `files_min` files below one size are merged, with all smaller ones. So a row is rewritten
  about three times in all, and not each time that new rows arrive. In a partition that has not
  changed since the last check, the remaining files are merged together. The work of one check is
  bounded in partitions and bytes; if work is left, the next check follows soon.
  A file with many deleted rows (merge on read) is rewritten without them.
- Expiry. Snapshots that are older than the configured age, except the newest few, and snapshots
  above the configured number. The table's own properties are respected: the longer time and the
  larger number count.
- Orphans. Files without a reference in any snapshot. Files of a running batch have none either, so
  only old files are deleted: `orphan_age_ms`.

`run.maintenance` carries out the maintenance.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

from penstock.spark.tables.definition.model import MaintenanceSettings
from penstock.spark.tables.files.table_facts import LiveFile, Partition, Retention, SnapshotFacts

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
SMALL_SHARE: Final = 0.75
"""A file below this share of a size is worth a rewrite."""
_STEP: Final = 8
_LOWEST_BYTES: Final = 2**20
"""Below this size the cost is in the number of files, not in their bytes."""
WORN_SHARE: Final = 0.2
"""A file with this share of deleted rows is rewritten: so a row is rewritten some four times for
each one that changes, and readers skip a fifth of the rows at most."""
EXPIRY_SHARE: Final = 10
"""The number of checks within the maximum age: snapshots stay a tenth longer at most."""


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """The intervals of maintenance, and the limits of one check."""

    compaction_interval_ms: int = 10 * MINUTE_MS
    retry_interval_ms: int = MINUTE_MS
    """The interval after a check that left work, or failed."""
    expiry_interval_ms_max: int = HOUR_MS
    orphan_interval_ms: int = DAY_MS
    orphan_retry_ms: int = HOUR_MS
    """The interval after a failure: a listing costs more than the other checks."""
    orphan_age_ms: int = 3 * DAY_MS
    """Longer than the longest batch, with all its attempts."""
    files_min: int = 8
    """The number of files of a partition, growing to the same size, that is worth a commit."""
    keep_count: int = 10
    """The number of newest snapshots that are always kept: readers may be using them."""
    partitions_max: int = 16
    """The maximum number of partitions in one check: each may be a commit."""
    bytes_max: int = 512 * 2**20
    """The maximum bytes read in one check: some seconds, during which the next batch waits."""


@dataclass(frozen=True, slots=True)
class MaintenanceTimes:
    """The last time of each task; None: not since this driver started, so it is due."""

    compacted_at_ms: int | None = None
    expired_at_ms: int | None = None
    cleaned_at_ms: int | None = None
    is_left: bool = False
    """Whether the last compaction left work."""


@dataclass(frozen=True, slots=True)
class Due:
    """The tasks that are due."""

    compaction: bool
    expiry: bool
    orphans: bool

    def __bool__(self) -> bool:
        return self.compaction or self.expiry or self.orphans


EVERYTHING: Final = Due(compaction=True, expiry=True, orphans=True)


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a partition; a different one shows that it has changed."""

    file_count: int
    size_bytes: int
    deleted_count: int = 0


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """Partitions whose small files are merged into files of one size."""

    target_bytes: int
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The compactions of one check."""

    jobs: tuple[CompactionJob, ...]
    is_left: bool
    """Whether there is more work than one check may do."""


def may_maintain(settings: MaintenanceSettings, retention: Retention) -> bool:
    """Return whether the table may be compacted, expired and cleaned up.

    A table of another owner is left alone unless the definition enables its maintenance.
    """
    return retention.is_own if settings.is_enabled is None else settings.is_enabled


def what_is_due(
    times: MaintenanceTimes,
    settings: MaintenanceSettings,
    policy: MaintenancePolicy,
    now_ms: int,
    commit_count: int = 0,
) -> Due:
    """Return the due tasks, by the clock and by the commits since the last expiry."""
    is_full = 0 < max(1, settings.snapshots_max // EXPIRY_SHARE) <= commit_count
    every_ms = policy.retry_interval_ms if times.is_left else policy.compaction_interval_ms
    return Due(
        compaction=_is_past(times.compacted_at_ms, every_ms, now_ms),
        expiry=(is_full and settings.snapshots_max > 0)
        or _is_past(times.expired_at_ms, expiry_interval_ms(settings, policy), now_ms),
        orphans=_is_past(times.cleaned_at_ms, policy.orphan_interval_ms, now_ms),
    )


def times_after(
    times: MaintenanceTimes,
    due: Due,
    failed: Due,
    settings: MaintenanceSettings,
    policy: MaintenancePolicy,
    now_ms: int,
) -> MaintenanceTimes:
    """Return the times after the due tasks; failed ones are retried before their interval."""
    if due.compaction:
        is_left = times.is_left or failed.compaction
        times = replace(times, compacted_at_ms=now_ms, is_left=is_left)
    if due.expiry:
        early_ms = expiry_interval_ms(settings, policy) - policy.retry_interval_ms
        times = replace(times, expired_at_ms=now_ms - (early_ms if failed.expiry else 0))
    if due.orphans:
        early_ms = policy.orphan_interval_ms - policy.orphan_retry_ms
        times = replace(times, cleaned_at_ms=now_ms - (early_ms if failed.orphans else 0))
    return times


def expiry_interval_ms(settings: MaintenanceSettings, policy: MaintenancePolicy) -> int:
    """Return the interval of the searches for old snapshots."""
    share_ms = settings.expire_snapshots_ms // EXPIRY_SHARE
    return min(policy.expiry_interval_ms_max, max(MINUTE_MS, share_ms))


def _is_past(last_ms: int | None, interval_ms: int, now_ms: int) -> bool:
    # A clock that was set back must not stop maintenance until it has caught up.
    return last_ms is None or not 0 <= now_ms - last_ms < interval_ms


class ExpiryJob(NamedTuple):
    """Expire snapshots from before a time, except the newest ones."""

    older_than_ms: int
    keep_count: int


def plan_expiry(
    facts: SnapshotFacts,
    settings: MaintenanceSettings,
    policy: MaintenancePolicy,
    retention: Retention,
    now_ms: int,
) -> tuple[ExpiryJob, ...]:
    """Return the snapshots to expire, by age and by number."""
    if facts.oldest_ms is None:
        return ()
    keep_count = max(policy.keep_count, retention.count_min)
    age_ms = max(settings.expire_snapshots_ms, retention.age_ms_min)
    jobs = [ExpiryJob(now_ms - age_ms, keep_count)]
    if settings.snapshots_max:
        count = max(settings.snapshots_max, keep_count)
        jobs.append(ExpiryJob(now_ms - retention.age_ms_min, count))
    return tuple(
        one for one in jobs if facts.oldest_ms < one.older_than_ms and facts.count > one.keep_count
    )


# --- Compaction ---


def extents_of(files: Iterable[LiveFile]) -> dict[Partition, Extent]:
    """Return the extent of each partition."""
    found: dict[Partition, Extent] = {}
    for file in files:
        held = found.get(file.partition, Extent(0, 0))
        found[file.partition] = Extent(
            held.file_count + 1,
            held.size_bytes + file.size_bytes,
            held.deleted_count + file.deleted_count,
        )
    return found


def is_worn(row_count: int, deleted_count: int) -> bool:
    """Return whether the deleted rows of a file are worth a rewrite."""
    return deleted_count > 0 and deleted_count >= WORN_SHARE * (row_count + deleted_count)


def plan_compaction(
    files: Iterable[LiveFile],
    target_bytes: int,
    policy: MaintenancePolicy,
    *,
    before: Mapping[Partition, Extent],
    fruitless: Mapping[Partition, Extent],
) -> CompactionPlan:
    """Return the compactions. `before`: extents at the last check; `fruitless`: tried in vain."""
    by_partition: dict[Partition, list[LiveFile]] = {}
    for file in files:
        by_partition.setdefault(file.partition, []).append(file)
    chosen: dict[int, list[Partition]] = {}
    count = size_bytes = 0
    is_left = False
    # Partitions with the most files first: they cost readers the most.
    for partition, found in sorted(by_partition.items(), key=lambda item: -len(item[1])):
        [extent] = extents_of(found).values()
        if fruitless.get(partition) == extent:
            continue
        sizes = [one.size_bytes for one in found]
        worn = [one.size_bytes for one in found if is_worn(one.row_count, one.deleted_count)]
        tier = _tier(sizes, target_bytes, policy, is_quiet=before.get(partition) == extent)
        if tier is None and not worn:
            continue
        tier = tier or tiers_of(target_bytes)[0]
        work = sum(one for one in sizes if _is_small(one, tier))
        work += sum(one for one in worn if not _is_small(one, tier))
        if count and (count >= policy.partitions_max or size_bytes + work > policy.bytes_max):
            is_left = True
            continue
        is_left = is_left or (bool(worn) and work > policy.bytes_max)
        chosen.setdefault(tier, []).append(partition)
        count += 1
        size_bytes += work
    jobs = tuple(CompactionJob(tier, tuple(chosen[tier])) for tier in sorted(chosen))
    return CompactionPlan(jobs, is_left)


def tiers_of(target_bytes: int) -> tuple[int, ...]:
    """Return the sizes that files grow through, the smallest first."""
    tiers = [target_bytes]
    for _ in range(2):
        if tiers[-1] // _STEP < _LOWEST_BYTES:
            break
        tiers.append(tiers[-1] // _STEP)
    return tuple(reversed(tiers))


def _tier(
    sizes: list[int], target_bytes: int, policy: MaintenancePolicy, *, is_quiet: bool
) -> int | None:
    """Return the size to which a partition's small files are merged; None: leave them."""
    if is_quiet:
        small = sorted(one for one in sizes if _is_small(one, target_bytes))
        return target_bytes if len(small) > 1 and sum(small[:2]) <= target_bytes else None
    chosen = None
    for lower, tier in pairwise((0, *tiers_of(target_bytes))):
        below = [one for one in sizes if _is_small(one, lower)]
        count = sum(1 for one in sizes if _is_small(one, tier)) - len(below)
        is_overfull = chosen == lower and sum(below) > lower
        if count >= policy.files_min or is_overfull:
            chosen = tier
    return chosen


def _is_small(size_bytes: int, tier: int) -> bool:
    return size_bytes < tier * SMALL_SHARE
