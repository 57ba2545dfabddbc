"""Rules about the positions of the group. They are Penstock's own addition to the known rules.

One history has one group. Its committed positions are one register for each key: a read returns the
value of some commit, and no commit that was over before the read began is wholly after that one.
Going back is legal when a member committed it (one with an older position may).
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator

from tests.checker.anomaly import Anomaly
from tests.checker.derived import Derived
from tests.checker.history import Commit, Committed, Completion, Op


@dataclasses.dataclass(frozen=True)
class _Written:
    position: int
    begun_ns: int
    ended_ns: float
    op: Op


def _written(derived: Derived) -> dict[int, list[_Written]]:
    by_key: dict[int, list[_Written]] = defaultdict(list)
    for one in derived.completions:
        for action in one.op.actions:
            if one.op.type != "fail" and isinstance(action, Commit):
                # A commit with an unknown end may happen at any time from its beginning on.
                ended_ns = one.op.time_ns if one.op.type == "ok" else math.inf
                for key, position in action.positions.items():
                    found = _Written(position, one.invoked.time_ns, ended_ns, one.op)
                    by_key[key].append(found)
    return by_key


def impossible_positions(derived: Derived) -> Iterator[Anomaly]:
    """A committed position that was read and cannot have been there."""
    written = _written(derived)
    for one in derived.completions:
        for action in one.op.actions:
            if one.op.type == "ok" and isinstance(action, Committed):
                for key, position in action.positions.items():
                    # The positions of a topic go with it when it is deleted.
                    if derived.has_one_log(key):
                        yield from _judge_position(one, key, position, written.get(key, []))


def _judge_position(
    read: Completion, key: int, position: int | None, written: list[_Written]
) -> Iterator[Anomaly]:
    over = [one for one in written if one.ended_ns < read.invoked.time_ns]
    newest = max(over, key=lambda one: one.begun_ns, default=None)
    if position is None:
        is_possible = newest is None
    else:
        is_possible = any(
            one.position == position
            and one.begun_ns < read.op.time_ns
            and (newest is None or one.ended_ns >= newest.begun_ns)
            for one in written
        )
    if not is_possible:
        expected = f"after {newest.position} was committed" if newest else "and nobody committed it"
        ops = (newest.op, read.op) if newest else (read.op,)
        text = f"key {key}: the committed position was {position}, {expected}"
        yield Anomaly("impossible-position", text, ops, key)


def consumed_twice(derived: Derived) -> Iterator[Anomaly]:
    """Two committed transactions took the same value, each with its position in the commit."""
    consumer: dict[tuple[int, int], Op] = {}
    for op in derived.ops:
        commits = [action for action in op.actions if isinstance(action, Commit)]
        if op.name != "txn" or op.type != "ok" or not commits:
            continue
        covered = {key for commit in commits for key in commit.positions}
        for key, values in derived.reads[op].items():
            for value in values if key in covered else ():
                before = consumer.setdefault((key, value), op)
                if before is not op:
                    text = f"key {key}: value {value} was consumed by two committed transactions"
                    yield Anomaly("consumed-twice", text, (before, op), key, (value,))


def unconsumed(derived: Derived) -> Iterator[Anomaly]:
    """The group's position is behind a value that no member of it ever got.

    What a failed transaction consumed does not count: its positions must not count either.
    """
    consumed = _consumed(derived)
    for key, (position, reader) in _highest_positions(derived).items():
        for offset, values in derived.log.get(key, {}).items():
            for value in sorted(values - consumed[key]) if offset < position else ():
                writer = derived.writer_of.get((key, value))
                if derived.may_vanish(key, value):
                    continue
                if writer is not None and derived.must_have_committed(writer, key, value):
                    text = (
                        f"key {key}: value {value}@{offset} was not consumed, position {position}"
                    )
                    yield Anomaly("unconsumed", text, (writer, reader), key, (value,))


def _highest_positions(derived: Derived) -> dict[int, tuple[int, Op]]:
    """For each key the highest position of the group that was read, and by whom."""
    highest: dict[int, tuple[int, Op]] = {}
    for op in derived.ops:
        for action in op.actions:
            if op.type == "ok" and isinstance(action, Committed):
                for key, position in action.positions.items():
                    if position is not None and position > highest.get(key, (0, op))[0]:
                        highest[key] = (position, op)
    return highest


def _consumed(derived: Derived) -> dict[int, set[int]]:
    """What members of the group got in operations that did not fail."""
    members: set[int] = set()
    consumed: dict[int, set[int]] = defaultdict(set)
    for op in derived.ops:
        if op.name == "subscribe":
            members.add(op.process)
        if op.process in members and op.type != "fail":
            for key, values in derived.reads[op].items():
                consumed[key].update(values)
    return consumed


GROUP_RULES = (impossible_positions, consumed_twice, unconsumed)
