"""Rules about removals: values without a removal still exist, and removed values stay removed."""

from collections.abc import Iterator

from tests.checker.anomaly import Anomaly
from tests.checker.derived import Derived


def vanished(derived: Derived) -> Iterator[Anomaly]:
    """A value that was in the log and that a reader of the final phase passed over.

    It is not `unseen`: others may have read it before. Values behind the last one that the reader
    got are not judged: that a reader did not come to the end is seen otherwise.
    """
    read: dict[int, dict[int, set[int]]] = {}
    for op in derived.ops:
        if op.process in derived.readers:
            mine = read.setdefault(op.process, {})
            for key, values in derived.reads[op].items():
                mine.setdefault(key, set()).update(values)
    for got in read.values():
        for key, found in got.items():
            order = derived.orders.get(key)
            if order is None:
                continue
            last = max((order.by_value[one] for one in found if one in order.by_value), default=0)
            for value in order.by_index[:last]:
                writer = derived.writer_of.get((key, value))
                if value in found or writer is None or derived.may_vanish(key, value):
                    continue
                if derived.must_have_committed(writer, key, value):
                    text = f"key {key}: value {value} was there, and a reader did not get it"
                    yield Anomaly("vanished", text, (writer,), key, (value,))


def deleted_reads(derived: Derived) -> Iterator[Anomaly]:
    """A client that began after DeleteRecords was answered was shown what it had deleted."""
    began_ns = _began_ns(derived)
    for op in derived.ops:
        for poll in op.polls:
            for key, records in poll.records.items():
                limit = max(
                    (
                        offset
                        for offset, ended_ns in derived.vanishing.cuts.get(key, ())
                        if ended_ns < began_ns[op.process]
                    ),
                    default=0,
                )
                for offset, value in records:
                    if offset < limit and derived.has_one_log(key):
                        text = f"key {key}: {value}@{offset} was read, deleted below {limit}"
                        yield Anomaly("deleted-read", text, (op,), key, (value,))


def resurrected(derived: Derived) -> Iterator[Anomaly]:
    """A client that began after a topic was created again was shown a record of the one before."""
    began_ns = _began_ns(derived)
    ended_ns = {one.op: one.op.time_ns for one in derived.completions}
    for (key, value), readers in derived.readers_of.items():
        writer = derived.writer_of.get((key, value))
        if writer is None or writer.type != "ok":
            continue
        for deleted_ns, created_ns in derived.vanishing.recreated.get(key, ()):
            if ended_ns[writer] < deleted_ns:
                late = [op for op in readers if began_ns[op.process] > created_ns]
                if late:
                    text = f"key {key}: value {value} was read after its topic had been deleted"
                    yield Anomaly("resurrected", text, (writer, late[0]), key, (value,))
                    break


def _began_ns(derived: Derived) -> dict[int, int]:
    """When each process did its first operation."""
    began: dict[int, int] = {}
    for one in derived.completions:
        at = one.invoked.time_ns
        process = one.op.process
        began[process] = min(at, began.get(process, at))
    return began


REMOVAL_RULES = (vanished, deleted_reads, resurrected)
