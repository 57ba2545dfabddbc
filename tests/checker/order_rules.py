"""Rules about order: within one operation, and from one operation of a process to its next.

A distance between two values is counted in the dense order of their key: 1 is the next value, more
is a skip, less is a step back. Values whose place is not known count as 1.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.checker.anomaly import Anomaly
from tests.checker.derived import Derived
from tests.checker.history import Op


def _steps(
    derived: Derived, op: Op, by_key: dict[int, list[int]], skip: str, back: str
) -> Iterator[Anomaly]:
    for key, values in by_key.items():
        order = derived.orders.get(key)
        if order is None:
            continue
        for earlier, later in pairwise(values):
            distance = order.distance(earlier, later)
            if (
                distance > 1
                and skip in POLL_SKIPS
                and _is_removed(derived, op, key, earlier, later)
            ):
                continue
            yield from _judged(distance, op, op, key, earlier, later, skip, back)


POLL_SKIPS = ("int-poll-skip", "poll-skip")


def _is_removed(derived: Derived, op: Op, key: int, earlier: int, later: int) -> bool:
    """Whether everything between two values that were read may be gone.

    A reader that came after all removals begins where the log begins: behind that, only compaction
    leaves values out. A consumer that is behind the new start of a log jumps there.
    """
    is_gone = derived.may_be_compacted if op.process in derived.readers else derived.may_vanish
    return all(is_gone(key, value) for value in derived.skipped(key, earlier, later))


def _judged(
    distance: int, before: Op, op: Op, key: int, earlier: int, later: int, skip: str, back: str
) -> Iterator[Anomaly]:
    if distance == 1:
        return
    ops = (op,) if before is op else (before, op)
    kind = skip if distance > 1 else back
    text = f"key {key}: {later} comes {distance} places after {earlier}"
    yield Anomaly(kind, text, ops, key, (earlier, later))


def steps_within_polls(derived: Derived) -> Iterator[Anomaly]:
    """Inside one operation polls neither skip nor go back; a rebalance may move them."""
    for op in derived.ops:
        by_key = {
            key: values for key, values in derived.reads[op].items() if key not in op.rebalanced
        }
        yield from _steps(derived, op, by_key, "int-poll-skip", "int-nonmonotonic-poll")


def steps_within_sends(derived: Derived) -> Iterator[Anomaly]:
    """Inside one operation sends keep their order; others may come between them."""
    for op in derived.ops:
        if op.type != "fail":
            by_key = derived.writes[op]
            yield from _steps(derived, op, by_key, "int-send-skip", "int-nonmonotonic-send")


def steps_between_polls(derived: Derived) -> Iterator[Anomaly]:
    """From one operation of a process to its next, polls neither skip nor go back.

    Every completion is judged, only an ok one moves the position: after a transaction that did not
    commit the consumer is put back. An assignment keeps the positions of keys that stay.
    """
    positions: dict[int, dict[int, tuple[Op, int]]] = defaultdict(dict)
    for op in derived.ops:
        mine = positions[op.process]
        if op.name in ("assign", "subscribe") and op.type != "fail":
            kept = set() if op.is_from_beginning else set(op.keys)
            positions[op.process] = {key: at for key, at in mine.items() if key in kept}
            continue
        for key, values in derived.reads[op].items():
            if key in mine and values:
                before, earlier = mine[key]
                order = derived.orders.get(key)
                distance = 1 if order is None else order.distance(earlier, values[0])
                if distance > 1 and _is_removed(derived, op, key, earlier, values[0]):
                    distance = 1
                yield from _judged(
                    distance, before, op, key, earlier, values[0], "poll-skip", "nonmonotonic-poll"
                )
            if op.type == "ok" and values:
                mine[key] = (op, values[-1])


def steps_between_sends(derived: Derived) -> Iterator[Anomaly]:
    """From one operation of a process to its next, sends to a key go forward."""
    last: dict[tuple[int, int], tuple[Op, int]] = {}
    for op in derived.ops:
        if op.type == "fail":
            continue
        for key, values in derived.writes[op].items():
            order = derived.orders.get(key)
            if order is None:
                continue
            placed = [value for value in values if value in order.by_value]
            if not placed:
                continue
            if (op.process, key) in last:
                before, earlier = last[op.process, key]
                if order.distance(earlier, placed[0]) < 1:
                    text = f"key {key}: {placed[0]} lies before {earlier}, which was sent earlier"
                    ops = (before, op)
                    yield Anomaly("nonmonotonic-send", text, ops, key, (earlier, placed[0]))
            last[op.process, key] = (op, placed[-1])


ORDER_RULES = (
    steps_within_polls,
    steps_within_sends,
    steps_between_polls,
    steps_between_sends,
)
