"""Rules about the log itself: each value is in it once, at one place, and every reader gets it."""

from collections import defaultdict
from collections.abc import Iterator

from tests.checker.anomaly import Anomaly
from tests.checker.derived import Derived
from tests.checker.history import Op


def _witnesses(derived: Derived, key: int, *values: int) -> tuple[Op, ...]:
    """Who wrote the values and who read them first."""
    found: list[Op] = []
    for value in values:
        writer = derived.writer_of.get((key, value))
        readers = derived.readers_of.get((key, value), [])
        found += [op for op in (writer, *readers[:1]) if op is not None and op not in found]
    return tuple(found)


def unwritten_reads(derived: Derived) -> Iterator[Anomaly]:
    """A value that nobody sent: garbage."""
    for (key, value), readers in derived.readers_of.items():
        if (key, value) not in derived.writer_of:
            text = f"key {key}: value {value} was read and nobody sent it"
            yield Anomaly("unwritten-read", text, tuple(readers[:1]), key, (value,))


def inconsistent_offsets(derived: Derived) -> Iterator[Anomaly]:
    """One offset with two values."""
    for key, offsets in derived.log.items():
        for offset, found in offsets.items():
            if len(found) > 1:
                values = tuple(sorted(found))
                text = f"key {key}: offset {offset} has the values {list(values)}"
                ops = _witnesses(derived, key, *values)
                yield Anomaly("inconsistent-offsets", text, ops, key, values)


def duplicates(derived: Derived) -> Iterator[Anomaly]:
    """One value at two offsets."""
    for key, offsets in derived.log.items():
        places: dict[int, list[int]] = defaultdict(list)
        for offset in sorted(offsets):
            for value in offsets[offset]:
                places[value].append(offset)
        for value, found in places.items():
            if len(found) > 1:
                text = f"key {key}: value {value} is at the offsets {found}"
                yield Anomaly("duplicate", text, _witnesses(derived, key, value), key, (value,))


def lost_writes(derived: Derived) -> Iterator[Anomaly]:
    """A certain write that lies before what was read, and that nobody read."""
    for key, offsets in derived.log.items():
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for index, offset in enumerate(sorted(offsets)):
            for value in offsets[offset]:
                first.setdefault(value, index)
                last[value] = index
        read = derived.ok_reads.get(key, set())
        bound = max((first[value] for value in read if value in first), default=-1)
        for value, index in last.items():
            writer = derived.writer_of.get((key, value))
            if index > bound or value in read or writer is None or derived.may_vanish(key, value):
                continue
            if derived.must_have_committed(writer, key, value):
                text = f"key {key}: value {value} was never read, later ones were"
                yield Anomaly("lost-write", text, (writer,), key, (value,))


def unseen(derived: Derived) -> Iterator[Anomaly]:
    """A certain write that no ok poll ever returned; true only after everything was read."""
    for (key, value), writer in derived.writer_of.items():
        is_certain = derived.must_have_committed(writer, key, value)
        if derived.may_vanish(key, value):
            continue
        if is_certain and value not in derived.ok_reads.get(key, set()):
            text = f"key {key}: value {value} was written and no poll ever returned it"
            yield Anomaly("unseen", text, (writer,), key, (value,))


def aborted_reads(derived: Derived) -> Iterator[Anomaly]:
    """G1a: an ok operation read what a failed one wrote."""
    for (key, value), readers in derived.readers_of.items():
        writer = derived.writer_of.get((key, value))
        if writer is None or writer.type != "fail":
            continue
        for reader in readers:
            if reader.type == "ok":
                text = f"key {key}: value {value} was read, its operation had failed"
                yield Anomaly("G1a", text, (writer, reader), key, (value,))
                break


def precommitted_reads(derived: Derived) -> Iterator[Anomaly]:
    """An operation read what it wrote itself, before its commit."""
    for op in derived.ops:
        for key, values in derived.writes[op].items():
            own = sorted(set(values) & set(derived.reads[op].get(key, ())))
            if own:
                text = f"key {key}: the operation read its own {own} before its commit"
                yield Anomaly("precommitted-read", text, (op,), key, tuple(own))


LOG_RULES = (
    unwritten_reads,
    inconsistent_offsets,
    duplicates,
    lost_writes,
    unseen,
    aborted_reads,
    precommitted_reads,
)
