"""The goals: one `Target` for each figure that a comparison judges. Data only.

A ratio is Penstock's median over Kafka's. Kafka's default acknowledges from memory. Unless the text
of a row says otherwise, Penstock's acknowledgements are durable: such a row compares a write to
disk with a write to memory, which is harder for Penstock.
"""

import dataclasses

from benchmarks.variants import (
    KAFKA_DURABLE,
    KAFKA_UNSYNCED,
    PENSTOCK_DURABLE,
    PENSTOCK_UNSYNCED,
    Variant,
)


@dataclasses.dataclass(frozen=True)
class Bound:
    """How a figure is judged: against Kafka's (a ratio) or by itself."""

    limit: float
    is_ratio: bool
    at_least: bool

    def holds(self, value: float) -> bool:
        """Whether a ratio, or a figure, is good enough."""
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{sign} {self.limit:g}{' x' if self.is_ratio else ''}"


def _at_least(ratio: float) -> Bound:
    return Bound(ratio, is_ratio=True, at_least=True)


def _at_most(ratio: float) -> Bound:
    return Bound(ratio, is_ratio=True, at_least=False)


def _no_more_than(value: float) -> Bound:
    return Bound(value, is_ratio=False, at_least=False)


@dataclasses.dataclass(frozen=True)
class Target:
    """One line of the table. Without a bound it is shown and not judged."""

    text: str
    workload: str
    value: str
    unit: str
    kafka: Variant
    penstock: Variant
    bound: Bound | None
    partitions: int | None = None
    """The number of partitions with load, where it matters to a reader."""


def _default(
    text: str, workload: str, value: str, unit: str, bound: Bound | None, partitions: int = 1
) -> Target:
    return Target(text, workload, value, unit, KAFKA_UNSYNCED, PENSTOCK_DURABLE, bound, partitions)


def _unsynced(text: str, workload: str, value: str, unit: str, bound: Bound | None) -> Target:
    return Target(text, workload, value, unit, KAFKA_UNSYNCED, PENSTOCK_UNSYNCED, bound, 1)


def _durable(
    text: str, workload: str, value: str, unit: str, bound: Bound | None, partitions: int = 1
) -> Target:
    return Target(text, workload, value, unit, KAFKA_DURABLE, PENSTOCK_DURABLE, bound, partitions)


def _process(text: str, workload: str, value: str, unit: str, bound: Bound | None) -> Target:
    """Return a figure of the whole broker, independent of topics."""
    return Target(text, workload, value, unit, KAFKA_UNSYNCED, PENSTOCK_DURABLE, bound)


_MANY_DURABLE: tuple[tuple[str, int, Bound | None], ...] = (
    ("many-128-durable", 1, _at_least(7)),
    ("many-128-durable-4", 4, None),
    ("many-128-durable-16", 16, _at_least(3)),
    ("many-128-durable-64", 64, _at_least(2.5)),
)


TARGETS = (
    _default(
        "produce 1 KB, librdkafka, Penstock durable",
        "librdkafka-1000",
        "mb_per_s",
        "MB/s",
        _at_least(1.2),
    ),
    _durable("produce 1 KB, librdkafka, both durable", "librdkafka-1000", "mb_per_s", "MB/s", None),
    _unsynced(
        "produce 1 KB, librdkafka, both unsynced", "librdkafka-1000", "mb_per_s", "MB/s", None
    ),
    _default(
        "produce 100 B, librdkafka, Penstock durable",
        "librdkafka-100",
        "mb_per_s",
        "MB/s",
        _at_least(1.1),
    ),
    _default(
        "produce 1 KB, idempotent Java producer, defaults, Penstock durable",
        "java-idempotent",
        "mb_per_s",
        "MB/s",
        _at_least(1.0),
        partitions=12,
    ),
    _default(
        "produce 64-KiB batches, raw, Penstock durable",
        "stream-64k",
        "mb_per_s",
        "MB/s",
        _at_least(0.9),
    ),
    _unsynced("produce 64-KiB batches, raw, both unsynced", "stream-64k", "mb_per_s", "MB/s", None),
    _default(
        "produce 250-KiB batches, raw, Penstock durable",
        "stream-250k",
        "mb_per_s",
        "MB/s",
        _at_least(1.0),
    ),
    _unsynced(
        "produce 250-KiB batches, raw, both unsynced", "stream-250k", "mb_per_s", "MB/s", None
    ),
    _default("fetch 1 MiB at a time, raw", "fetch-1m", "mb_per_s", "MB/s", _at_least(1.0)),
    _default("fetch 8 MiB at a time, raw", "fetch-8m", "mb_per_s", "MB/s", _at_least(1.0)),
    _unsynced(
        "one-record produce, unsynced, p50", "single-unsynced", "p50_us", "µs", _at_most(0.65)
    ),
    _unsynced(
        "one-record produce, unsynced, p99", "single-unsynced", "p99_us", "µs", _at_most(0.65)
    ),
    _durable("one-record produce, durable, p50", "single-durable", "p50_us", "µs", _at_most(0.75)),
    _durable("one-record produce, durable, p99", "single-durable", "p99_us", "µs", _at_most(1.0)),
    _durable("32 connections, durable", "many-32-durable", "requests_per_s", "req/s", _at_least(4)),
    *(
        _durable(
            "128 connections, both durable", workload, "requests_per_s", "req/s", bound, partitions
        )
        for workload, partitions, bound in _MANY_DURABLE
    ),
    *(
        _default(
            "128 connections, Penstock durable",
            workload,
            "requests_per_s",
            "req/s",
            None,
            partitions,
        )
        for workload, partitions, _bound in _MANY_DURABLE
    ),
    _unsynced(
        "32 connections, unsynced", "many-32-unsynced", "requests_per_s", "req/s", _at_least(1.1)
    ),
    _unsynced("end to end, unsynced, p50", "end-to-end-unsynced", "p50_us", "µs", _at_most(0.7)),
    _durable("end to end, durable, p50", "end-to-end-durable", "p50_us", "µs", _at_most(0.7)),
    _default(
        "broker CPU per GB produced, 1 KB, raw",
        "stream-250k",
        "cpu_s_per_gb",
        "s/GB",
        _at_most(0.8),
    ),
    _default(
        "broker CPU per GB produced, 1 KB, librdkafka",
        "librdkafka-1000",
        "cpu_s_per_gb",
        "s/GB",
        None,
    ),
    _default(
        "broker CPU per GB fetched, 1 KB, 8 MiB at a time",
        "fetch-8m",
        "cpu_s_per_gb",
        "s/GB",
        _at_most(1.0),
    ),
    _default(
        "broker CPU per GB fetched, 1 KB, 1 MiB at a time",
        "fetch-1m",
        "cpu_s_per_gb",
        "s/GB",
        _at_most(1.2),
    ),
    _process("memory idle", "cold-start", "rss_mb", "MB", _no_more_than(80)),
    _process("memory after load", "memory-after-load", "rss_mb", "MB", _no_more_than(150)),
    _process("cold start to first answer", "cold-start", "seconds", "s", _no_more_than(0.35)),
)
