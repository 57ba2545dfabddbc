"""The workloads: each loads one running broker once and returns named values.

Every workload checks that the broker stored, or delivered, exactly the records that the client
counted: a figure with rejected or lost records would be worthless. Dirty pages of an earlier run
are written out before the clock starts, so that no workload pays for the writes of another one.

Byte figures are megabytes (10^6): of record values for librdkafka, of whole record batches for the
raw client. CPU figures are of the broker's process, all its threads, over the whole workload.
"""

import dataclasses
import os
import time
from collections.abc import Callable

from benchmarks.contestants import Contestant, Stage
from benchmarks.load import Report, run_java_producer, run_librdkafka, run_raw
from benchmarks.variants import (
    KAFKA_DURABLE,
    KAFKA_UNSYNCED,
    PENSTOCK_DURABLE,
    PENSTOCK_UNSYNCED,
    Values,
    Variant,
)

GIGABYTE = 1e9
MEGABYTE = 1e6
IDLE_SECONDS = 1.0
"""Time without requests after a start before the idle memory is read."""

ALL = (KAFKA_UNSYNCED, KAFKA_DURABLE, PENSTOCK_DURABLE, PENSTOCK_UNSYNCED)
DEFAULTS = (KAFKA_UNSYNCED, PENSTOCK_DURABLE)
"""Each broker with its defaults: Kafka acknowledges from memory, Penstock from disk."""
UNSYNCED = (KAFKA_UNSYNCED, PENSTOCK_UNSYNCED)
DURABLE = (KAFKA_DURABLE, PENSTOCK_DURABLE)
SPREAD = (KAFKA_UNSYNCED, KAFKA_DURABLE, PENSTOCK_DURABLE)
"""Durable Penstock against Kafka with `flush.messages=1`, and against Kafka's default."""

JAVA_PARTITIONS = 12


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of the workloads; `quick` is for a test of the harness, not for figures."""

    librdkafka_1kb_records: int = 400_000
    librdkafka_100b_records: int = 2_000_000
    stream_bytes: int = 500_000_000
    fetch_log_bytes: int = 256_000_000
    fetch_passes: int = 8
    single_requests: int = 20_000
    single_durable_requests: int = 5_000
    many_seconds: float = 3.0
    end_to_end_requests: int = 3_000
    java_records: int = 400_000

    @staticmethod
    def quick() -> "Sizes":
        """Return a tenth of the sizes."""
        return Sizes(40_000, 200_000, 50_000_000, 50_000_000, 2, 2_000, 500, 0.5, 300, 40_000)


@dataclasses.dataclass(frozen=True)
class Workload:
    """One workload, and the variants that it runs on."""

    name: str
    variants: tuple[Variant, ...]
    run: Callable[[Stage, Variant, Sizes], Values]
    warms_up: bool = True
    """Whether a first, uncounted run is useful."""


class MismatchError(RuntimeError):
    """Client and broker do not agree on what was stored."""


def _measured(
    contestant: Contestant, topic: str, load: Callable[[], Report], partitions: int = 1
) -> Values:
    """Run a produce load; return the values of its report and of the broker's usage."""
    os.sync()
    before = contestant.broker.usage()
    report = load()
    after = contestant.broker.usage()
    held = contestant.topics.records(topic, partitions)
    if held != report.records:
        raise MismatchError(
            f"{contestant.variant}: {report.records} records acknowledged, {held} in the log"
        )
    return _values(report, after.cpu_seconds - before.cpu_seconds)


def _values(report: Report, cpu_seconds: float) -> Values:
    values = {"seconds": report.seconds, "cpu_s": cpu_seconds}
    values["client_cpu_s"] = report.client_cpu_seconds
    if report.bytes:
        values["mb_per_s"] = report.bytes / MEGABYTE / report.seconds
        values["cpu_s_per_gb"] = cpu_seconds / (report.bytes / GIGABYTE)
    if report.p50_us:
        values["p50_us"] = report.p50_us
        values["p99_us"] = report.p99_us
        values["requests_per_s"] = report.requests / report.seconds
    return values


def _librdkafka(value_bytes: int, records_of: Callable[[Sizes], int]) -> Workload:
    def run(stage: Stage, variant: Variant, sizes: Sizes) -> Values:
        contestant = stage.contestant(variant)
        with contestant.topic() as topic:
            return _measured(
                contestant,
                topic,
                lambda: run_librdkafka(
                    contestant.broker.bootstrap,
                    topic,
                    value_bytes=value_bytes,
                    records=records_of(sizes),
                ),
            )

    return Workload(f"librdkafka-{value_bytes}", ALL if value_bytes == 1000 else DEFAULTS, run)


def _stream(records: int, value_bytes: int, name: str) -> Workload:
    def run(stage: Stage, variant: Variant, sizes: Sizes) -> Values:
        contestant = stage.contestant(variant)
        with contestant.topic() as topic:
            return _measured(
                contestant,
                topic,
                lambda: run_raw(
                    "produce-stream",
                    address=contestant.broker.bootstrap,
                    topic=topic,
                    records=records,
                    value_bytes=value_bytes,
                    total_bytes=sizes.stream_bytes,
                ),
            )

    return Workload(name, (*DEFAULTS, PENSTOCK_UNSYNCED), run)


def _filled_topic(contestant: Contestant, sizes: Sizes) -> str:
    """The topic that the fetch workloads read, filled and checksummed once for each broker."""
    if "fetch" not in contestant.kept:
        topic = contestant.topics.create()
        address = contestant.broker.bootstrap
        run_raw(
            "produce-stream",
            address=address,
            topic=topic,
            records=250,
            value_bytes=1000,
            total_bytes=sizes.fetch_log_bytes,
        )
        end = contestant.topics.records(topic)
        run_raw("fetch-stream", address=address, topic=topic, end_offset=end, verify="true")
        contestant.kept["fetch"] = topic
    return contestant.kept["fetch"]


def _fetch(name: str, max_bytes: int) -> Workload:
    def run(stage: Stage, variant: Variant, sizes: Sizes) -> Values:
        contestant = stage.contestant(variant)
        topic = _filled_topic(contestant, sizes)
        end = contestant.topics.records(topic)
        os.sync()
        before = contestant.broker.usage()
        report = run_raw(
            "fetch-stream",
            address=contestant.broker.bootstrap,
            topic=topic,
            end_offset=end,
            max_bytes=max_bytes,
            passes=sizes.fetch_passes,
        )
        after = contestant.broker.usage()
        if report.records != end * sizes.fetch_passes:
            raise MismatchError(f"{variant}: {report.records} fetched, {end} in the log")
        return _values(report, after.cpu_seconds - before.cpu_seconds)

    return Workload(name, DEFAULTS, run)


def _single(name: str, variants: tuple[Variant, ...]) -> Workload:
    def run(stage: Stage, variant: Variant, sizes: Sizes) -> Values:
        contestant = stage.contestant(variant)
        count = sizes.single_durable_requests if variant.durable else sizes.single_requests
        with contestant.topic() as topic:
            return _measured(
                contestant,
                topic,
                lambda: run_raw(
                    "produce-single",
                    address=contestant.broker.bootstrap,
                    topic=topic,
                    count=count,
                    warm_up=count // 5,
                ),
            )

    return Workload(name, variants, run)


def _java(name: str) -> Workload:
    def run(stage: Stage, variant: Variant, sizes: Sizes) -> Values:
        contestant = stage.contestant(variant)
        with contestant.topic(JAVA_PARTITIONS) as topic:
            values = _measured(
                contestant,
                topic,
                lambda: run_java_producer(
                    contestant.broker.bootstrap, topic, value_bytes=1000, records=sizes.java_records
                ),
                JAVA_PARTITIONS,
            )
        del values["cpu_s_per_gb"]  # CPU time includes the warm-up, the bytes do not.
        return values

    return Workload(name, DEFAULTS, run)


def _many(
    name: str, connections: int, variants: tuple[Variant, ...], partitions: int = 1
) -> Workload:
    def run(stage: Stage, variant: Variant, sizes: Sizes) -> Values:
        contestant = stage.contestant(variant)
        with contestant.topic(partitions) as topic:
            return _measured(
                contestant,
                topic,
                lambda: run_raw(
                    "produce-many",
                    address=contestant.broker.bootstrap,
                    topic=topic,
                    connections=connections,
                    partitions=partitions,
                    seconds=sizes.many_seconds,
                    warm_up=300,
                ),
                partitions,
            )

    return Workload(name, variants, run)


def _end_to_end(name: str, variants: tuple[Variant, ...]) -> Workload:
    def run(stage: Stage, variant: Variant, sizes: Sizes) -> Values:
        contestant = stage.contestant(variant)
        count = sizes.end_to_end_requests
        with contestant.topic() as topic:
            return _measured(
                contestant,
                topic,
                lambda: run_raw(
                    "end-to-end",
                    address=contestant.broker.bootstrap,
                    topic=topic,
                    count=count,
                    warm_up=count // 5,
                ),
            )

    return Workload(name, variants, run)


def _cold_start(stage: Stage, variant: Variant, _sizes: Sizes) -> Values:
    with stage.fresh(variant) as broker:
        time.sleep(IDLE_SECONDS)
        return {"seconds": broker.ready_seconds, "rss_mb": broker.usage().rss_bytes / MEGABYTE}


def _memory(stage: Stage, variant: Variant, _sizes: Sizes) -> Values:
    return {"rss_mb": stage.contestant(variant).broker.usage().rss_bytes / MEGABYTE}


WORKLOADS = (
    Workload("cold-start", DEFAULTS, _cold_start, warms_up=False),
    _librdkafka(1000, lambda sizes: sizes.librdkafka_1kb_records),
    _librdkafka(100, lambda sizes: sizes.librdkafka_100b_records),
    _java("java-idempotent"),
    _stream(600, 100, "stream-64k"),
    _stream(250, 1000, "stream-250k"),
    _fetch("fetch-1m", 1 << 20),
    _fetch("fetch-8m", 8 << 20),
    _single("single-unsynced", UNSYNCED),
    _single("single-durable", DURABLE),
    _many("many-32-durable", 32, DURABLE),
    _many("many-128-durable", 128, SPREAD),
    _many("many-128-durable-4", 128, SPREAD, partitions=4),
    _many("many-128-durable-16", 128, SPREAD, partitions=16),
    _many("many-128-durable-64", 128, SPREAD, partitions=64),
    _many("many-32-unsynced", 32, UNSYNCED),
    _end_to_end("end-to-end-unsynced", UNSYNCED),
    _end_to_end("end-to-end-durable", DURABLE),
    Workload("memory-after-load", DEFAULTS, _memory, warms_up=False),
)
"""In the order of their runs; memory is last, after all other workloads."""
