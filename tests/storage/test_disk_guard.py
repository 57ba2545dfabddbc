"""Free-space watermarks with hysteresis."""

from penstock.storage.disk_guard import DiskGuard, DiskState
from penstock.storage.filesystem import Space

GIB = 1 << 30


def test_a_large_disk() -> None:
    guard = DiskGuard()
    total = 1_000 * GIB
    assert guard.sample(Space(101 * GIB, total)) is DiskState.OPEN
    assert guard.sample(Space(99 * GIB, total)) is DiskState.LOW
    assert guard.sample(Space(49 * GIB, total)) is DiskState.FULL
    assert guard.sample(Space(55 * GIB, total)) is DiskState.FULL, "it does not flap"
    assert guard.sample(Space(61 * GIB, total)) is DiskState.LOW
    assert guard.sample(Space(500 * GIB, total)) is DiskState.OPEN


def test_a_small_disk_is_not_refused_for_being_small() -> None:
    guard = DiskGuard()
    assert guard.sample(Space(GIB // 2, GIB)) is DiskState.OPEN
    assert guard.sample(Space(GIB // 20, GIB)) is DiskState.FULL


def test_at_least_a_gibibyte_is_kept() -> None:
    guard = DiskGuard()
    assert guard.sample(Space(GIB - 1, 15 * GIB)) is DiskState.FULL
