"""Free-space watermarks with hysteresis."""

from penstock.storage.disk.disk_guard import DiskGuard, DiskState
from penstock.storage.disk.filesystem import Space

MIB = 1 << 20
GIB = 1 << 30


def states(guard: DiskGuard, total_bytes: int, *free_bytes: int) -> list[DiskState]:
    return [guard.sample(Space(free, total_bytes)) for free in free_bytes]


def test_a_number_of_bytes() -> None:
    guard = DiskGuard(free_bytes_min=100 * MIB)
    free = (300 * MIB, 150 * MIB, 99 * MIB, 110 * MIB, 121 * MIB, 300 * MIB)
    assert states(guard, 1_000 * GIB, *free) == [
        DiskState.OPEN,
        DiskState.LOW,
        DiskState.FULL,
        DiskState.FULL,  # it does not flap
        DiskState.LOW,
        DiskState.OPEN,
    ]


def test_a_share_of_the_disk() -> None:
    guard = DiskGuard(free_bytes_min=0, free_share_min=0.05)
    assert states(guard, 1_000 * GIB, 101 * GIB, 99 * GIB, 49 * GIB) == [
        DiskState.OPEN,
        DiskState.LOW,
        DiskState.FULL,
    ]


def test_a_small_disk_is_not_refused_for_being_small() -> None:
    guard = DiskGuard(free_bytes_min=GIB)
    assert states(guard, GIB, GIB // 2, GIB // 20) == [DiskState.OPEN, DiskState.FULL]


def test_no_guard() -> None:
    guard = DiskGuard(free_bytes_min=0)
    assert states(guard, GIB, 0) == [DiskState.OPEN]


def test_the_marks_are_told() -> None:
    guard = DiskGuard(free_bytes_min=100 * MIB)
    guard.sample(Space(GIB, 1_000 * GIB))
    assert guard.marks == (100 * MIB, 120 * MIB, 200 * MIB)
    assert guard.space == Space(GIB, 1_000 * GIB)


def test_marks_that_change_count_from_the_next_measurement() -> None:
    guard = DiskGuard(free_bytes_min=100 * MIB)
    assert states(guard, 1_000 * GIB, 150 * MIB) == [DiskState.LOW]
    guard.change_marks(free_bytes_min=200 * MIB, free_share_min=0.0)
    assert guard.state is DiskState.LOW
    assert states(guard, 1_000 * GIB, 150 * MIB) == [DiskState.FULL]
