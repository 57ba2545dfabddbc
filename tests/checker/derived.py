"""The log as a history shows it: the writer and readers of each value, and the order of each key.

Guarantees: the log of a key is fed from every poll, of failed operations too (a consumer must never
be shown bad data), and from sends with a known offset that must have happened. The order of a key
is dense: gaps between offsets are legal (transaction markers, compaction) and do not count. A topic
that was deleted and created again has no log here: one offset may have had several values.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from tests.checker.history import Completion, HistoryError, Op, completions
from tests.checker.vanishing import Vanishing, record_key


@dataclasses.dataclass(frozen=True)
class KeyOrder:
    """The values of one key in the order of their offsets, one for each offset."""

    by_index: list[int]
    by_value: dict[int, int]

    def distance(self, earlier: int, later: int) -> int:
        """How many places `later` is behind `earlier`; 1 when a place is not known."""
        first, second = self.by_value.get(earlier), self.by_value.get(later)
        if first is None or second is None:
            return 1
        return second - first


class Derived:
    """All structures that the rules need, built once."""

    def __init__(self, history: Sequence[Op]) -> None:
        self.completions: list[Completion] = completions(history)
        self.vanishing = Vanishing(self.completions)
        self.begun_ns = {one.op: one.invoked.time_ns for one in self.completions}
        self.ops: list[Op] = [one.op for one in self.completions]
        self.writer_of: dict[tuple[int, int], Op] = {}
        self.readers_of: dict[tuple[int, int], list[Op]] = defaultdict(list)
        self.ok_reads: dict[int, set[int]] = defaultdict(set)
        self.reads: dict[Op, dict[int, list[int]]] = {}
        self.writes: dict[Op, dict[int, list[int]]] = {}
        self._note_reads_and_writes()
        self.log: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.offset_of: dict[tuple[int, int], int] = {}
        self._fill_log()
        self.orders = {key: _order(offsets) for key, offsets in self.log.items()}
        self.readers = {op.process for op in self.ops if op.is_from_beginning}
        """Processes of the final phase, which read everything from the beginning."""
        self._last_of_record_key = {key: _last_places(order) for key, order in self.orders.items()}

    def _note_reads_and_writes(self) -> None:
        for op in self.ops:
            self.reads[op] = op.reads()
            self.writes[op] = op.writes()
            for key, values in self.writes[op].items():
                for value in values:
                    if (key, value) in self.writer_of:
                        raise HistoryError(
                            f"value {value} of key {key} is sent twice: {op.short()}"
                        )
                    self.writer_of[key, value] = op
            for key, values in self.reads[op].items():
                for value in values:
                    readers = self.readers_of[key, value]
                    if not readers or readers[-1] is not op:
                        readers.append(op)
                if op.type == "ok":
                    self.ok_reads[key].update(values)

    def _fill_log(self) -> None:
        for op in self.ops:
            for poll in op.polls:
                for key, records in poll.records.items():
                    for offset, value in records if self.has_one_log(key) else ():
                        self.log[key][offset].add(value)
                        self.offset_of.setdefault((key, value), offset)
            for send in op.sends:
                if send.offset is None or not self.has_one_log(send.key):
                    continue
                if self.must_have_committed(op, send.key, send.value):
                    self.log[send.key][send.offset].add(send.value)
                    self.offset_of.setdefault((send.key, send.value), send.offset)

    def has_one_log(self, key: int) -> bool:
        """Whether the topic was never deleted: else one offset may have had several values."""
        return key not in self.vanishing.recreated

    def may_vanish(self, key: int, value: int) -> bool:
        """Whether somebody removed the value, or may have."""
        return self.may_be_compacted(key, value) or self._may_be_removed(key, value)

    def may_be_compacted(self, key: int, value: int) -> bool:
        """Whether a later value of the same record key lets compaction remove it."""
        order = self.orders.get(key)
        if key not in self.vanishing.compacted or order is None or value not in order.by_value:
            return False
        return order.by_value[value] < self._last_of_record_key[key][record_key(value)]

    def _may_be_removed(self, key: int, value: int) -> bool:
        writer = self.writer_of.get((key, value))
        written_ns = 0 if writer is None else self.begun_ns[writer]
        return (
            self.vanishing.is_cut(key, self.offset_of.get((key, value)))
            or self.vanishing.is_retained_out(key, written_ns)
            or self.vanishing.is_of_deleted_topic(key, written_ns)
        )

    def skipped(self, key: int, earlier: int, later: int) -> list[int]:
        """The values between two values of a key."""
        order = self.orders[key]
        return order.by_index[order.by_value[earlier] + 1 : order.by_value[later]]

    def must_have_committed(self, op: Op, key: int, value: int) -> bool:
        """Whether the operation's write of this value is certain.

        A transaction is whole: one value of it that was read makes all of it certain. Sends without
        a transaction stand for themselves.
        """
        if op.type != "info":
            return op.type == "ok"
        if op.name != "txn":
            return value in self.ok_reads[key]
        return any(send.value in self.ok_reads[send.key] for send in op.sends)


def _order(offsets: dict[int, set[int]]) -> KeyOrder:
    by_index = [min(offsets[offset]) for offset in sorted(offsets) if offsets[offset]]
    by_value: dict[int, int] = {}
    for index, value in enumerate(by_index):
        by_value.setdefault(value, index)
    return KeyOrder(by_index, by_value)


def _last_places(order: KeyOrder) -> dict[int, int]:
    """For each record key the place of its last value."""
    last: dict[int, int] = {}
    for index, value in enumerate(order.by_index):
        last[record_key(value)] = index
    return last
