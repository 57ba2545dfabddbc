"""Instance numbers: restarts and kills are accepted, copies of a disk are refused."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.edge.registry.instances import (
    INSTANCE_MAX,
    SILENCE_SECONDS,
    InstanceRefusal,
    new_instance,
    take_instance,
    use_instance,
)
from penstock.edge.registry.node_entry import NodeEntry

ENTRY = NodeEntry("store", "token:x")
LATE = SILENCE_SECONDS


def taken(entry: NodeEntry, shown: int, boot: str, silent: float = LATE) -> NodeEntry:
    found = take_instance(entry, shown, boot, silent)
    assert isinstance(found, NodeEntry)
    return found


def used(entry: NodeEntry, shown: int) -> NodeEntry:
    found = use_instance(entry, shown)
    assert isinstance(found, NodeEntry)
    return found


def test_each_process_gets_the_next_number() -> None:
    first = used(taken(ENTRY, 0, "a", 0.0), 1)
    assert (first.instance, first.used_instance) == (1, 1)
    assert taken(first, 1, "b").instance == 2


def test_the_same_process_keeps_its_number() -> None:
    first = used(taken(ENTRY, 0, "a"), 1)
    assert take_instance(first, 0, "a", 0.0) == first


def test_the_second_process_waits_while_the_first_is_alive() -> None:
    first = used(taken(ENTRY, 0, "a"), 1)
    refusal = take_instance(first, 1, "copy", LATE - 1)
    assert isinstance(refusal, InstanceRefusal)
    assert refusal.retry_after_seconds == 1
    assert "another process of node store was seen 89 s ago" in refusal.reason


def test_an_old_number_is_refused_until_an_operator_accepts_it() -> None:
    second = used(taken(used(taken(ENTRY, 0, "a"), 1), 1, "b"), 2)
    refusal = take_instance(second, 1, "old disk", 1e9)
    assert isinstance(refusal, InstanceRefusal)
    assert refusal.retry_after_seconds is None
    assert taken(new_instance(second), 1, "old disk", 0.0).instance == 2


def test_a_number_that_was_never_used_may_be_missing_on_the_disk() -> None:
    second = taken(used(taken(ENTRY, 0, "a"), 1), 1, "b")
    assert taken(second, 1, "c").instance == 3, "killed before it wrote number 2"


def test_a_registry_from_a_backup_accepts_a_higher_number() -> None:
    first = used(taken(ENTRY, 0, "a"), 1)
    assert taken(first, 7, "b").instance == 8


def test_copies_are_found_also_after_a_number_that_no_registry_gave() -> None:
    first = taken(ENTRY, INSTANCE_MAX, "a")
    assert first.instance == 1
    second = used(taken(used(first, 1), 1, "b"), 2)
    assert isinstance(take_instance(second, 1, "copy", 1e9), InstanceRefusal)


def test_a_poll_with_another_number_is_refused() -> None:
    first = taken(ENTRY, 0, "a")
    assert isinstance(use_instance(first, 0), InstanceRefusal)
    assert isinstance(use_instance(first, 2), InstanceRefusal)


@given(st.lists(st.sampled_from(["kill before the write", "kill after the write", "poll"])))
def test_one_disk_is_never_refused_for_good(steps: list[str]) -> None:
    entry, disk, boots = ENTRY, 0, 0
    for step in steps:
        boots += 1
        entry = taken(entry, disk, str(boots))
        if step == "kill before the write":
            continue
        disk = entry.instance
        if step == "poll":
            entry = used(entry, disk)


@given(st.integers(0, 20), st.booleans())
def test_of_two_disks_one_is_refused(restarts: int, is_first_alive: bool) -> None:
    """A copy starts while the first process runs, or while it is off; one of them is refused."""
    entry, disk = ENTRY, 0
    for number in range(restarts + 1):
        entry = taken(entry, disk, f"first-{number}")
        disk = entry.instance
        entry = used(entry, disk)
    copy = disk
    found = take_instance(entry, copy, "copy", 1.0 if is_first_alive else LATE)
    if is_first_alive:
        assert isinstance(found, InstanceRefusal)
        return
    assert isinstance(found, NodeEntry)
    found = used(found, found.instance)
    back = take_instance(found, disk, "first again", LATE)
    assert isinstance(back, InstanceRefusal)
    assert back.retry_after_seconds is None
