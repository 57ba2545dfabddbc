"""What a history tells about the log: who wrote and read what, and the order of each key.

Guarantees: the log of a key is fed from every poll, of failed operations too (a consumer must never
be shown bad data), and from sends with a known offset that must have happened. The order of a key
is dense: gaps between offsets are legal (transaction markers, compaction) and do not count.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from tests.checker.history import Completion, HistoryError, Op, completions


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
    """All structures that the rules need, made once."""

    def __init__(self, history: Sequence[Op]) -> None:
        self.completions: list[Completion] = completions(history)
        self.ops: list[Op] = [one.op for one in self.completions]
        self.writer_of: dict[tuple[int, int], Op] = {}
        self.readers_of: dict[tuple[int, int], list[Op]] = defaultdict(list)
        self.ok_reads: dict[int, set[int]] = defaultdict(set)
        self.reads: dict[Op, dict[int, list[int]]] = {}
        self.writes: dict[Op, dict[int, list[int]]] = {}
        self._note_reads_and_writes()
        self.log: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._fill_log()
        self.orders = {key: _order(offsets) for key, offsets in self.log.items()}

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
                    for offset, value in records:
                        self.log[key][offset].add(value)
            for send in op.sends:
                if send.offset is not None and self.must_have_committed(op, send.key, send.value):
                    self.log[send.key][send.offset].add(send.value)

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
