"""The coverage of a history, in numbers. Nothing here is right or wrong (rule 12)."""

import dataclasses
from collections import Counter

from tests.checker.derived import Derived


@dataclasses.dataclass(frozen=True)
class Figures:
    """Counts of one history."""

    operations: dict[str, int]
    """By `name type`."""
    values_sent: int
    values_read: int
    consumed: dict[int, int]
    """How often a value was consumed by a subscribed process → how many values."""
    lag_max_seconds: float
    """How long, at worst, a consumer's newest value had not been the newest of its key."""

    def text(self) -> str:
        """One line for each."""
        counted = ", ".join(f"{count} {name}" for name, count in sorted(self.operations.items()))
        times = ", ".join(f"{count} values {n} times" for n, count in sorted(self.consumed.items()))
        return (
            f"operations: {counted}\n"
            f"values: {self.values_sent} sent, {self.values_read} read\n"
            f"consumed by subscribers: {times or 'none'}\n"
            f"longest lag: {self.lag_max_seconds:.1f} s"
        )


def figures(derived: Derived) -> Figures:
    """All counts."""
    operations = Counter(f"{op.name} {op.type}" for op in derived.ops)
    return Figures(
        dict(operations),
        len(derived.writer_of),
        sum(len(values) for values in derived.ok_reads.values()),
        dict(Counter(_consume_counts(derived).values())),
        _lag_max_seconds(derived),
    )


def _consume_counts(derived: Derived) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    subscribed: set[int] = set()
    for op in derived.ops:
        if op.name == "subscribe" and op.type == "ok":
            subscribed.add(op.process)
        elif op.name == "assign" and op.type == "ok":
            subscribed.discard(op.process)
        if op.type == "ok" and op.process in subscribed:
            for key, values in derived.reads[op].items():
                counts.update((key, value) for value in set(values))
    return counts


def _lag_max_seconds(derived: Derived) -> float:
    known_ns: dict[tuple[int, int], int] = {}
    for op in derived.ops:
        for by_key in (derived.writes[op], derived.reads[op]):
            for key, values in by_key.items():
                for value in values:
                    known_ns.setdefault((key, value), op.time_ns)
    highest: dict[tuple[int, int], int] = {}
    worst_ns = 0
    for one in derived.completions:
        if one.op.type != "ok":
            continue
        for key, values in derived.reads[one.op].items():
            order = derived.orders.get(key)
            if order is None:
                continue
            place = max(
                (order.by_value[value] for value in values if value in order.by_value), default=-1
            )
            at = max(highest.get((one.op.process, key), -1), place)
            highest[one.op.process, key] = at
            if 0 <= at < len(order.by_index) - 1:
                later_ns = known_ns.get((key, order.by_index[at + 1]), one.op.time_ns)
                worst_ns = max(worst_ns, one.invoked.time_ns - later_ns)
    return worst_ns / 1e9
