"""The comparison: selected rows, a busy machine, failures, and the report."""

import pytest

from benchmarks.machine import described_build
from benchmarks.pinning import Cores, choose_cores
from benchmarks.report import Sample, row_text
from benchmarks.side_by_side import (
    ATTEMPTS_MAX,
    chosen_rows,
    chosen_workloads,
    compare,
    quietest,
    written_notes,
)
from benchmarks.targets import TARGETS
from benchmarks.variants import KAFKA_DURABLE, PENSTOCK_DURABLE
from benchmarks.workloads import WORKLOADS
from tests.oracle.cache import OracleError


def sample(round_number: int = 1, others_busy: float = 0.0) -> Sample:
    return Sample("load", PENSTOCK_DURABLE, round_number, {"cpu_s": 1.0}, others_busy)


def test_every_row_is_measured_by_a_workload_on_both_of_its_variants() -> None:
    variants = {workload.name: workload.variants for workload in WORKLOADS}
    for row in TARGETS:
        assert {row.kafka, row.penstock} <= set(variants[row.workload])


def test_rows_are_chosen_by_text_or_workload() -> None:
    assert [row.workload for row in chosen_rows(["*, both durable, 16 PARTITIONS"])] == [
        "many-128-durable-16"
    ]
    assert {row.unit for row in chosen_rows(["fetch-8m"])} == {"MB/s", "s/GB"}
    assert chosen_rows(["no such row"]) == []
    assert chosen_rows(None) == list(TARGETS)


def test_only_the_variants_of_the_chosen_rows_run() -> None:
    (workload,) = chosen_workloads(chosen_rows(["128 connections, both durable, 64*"]), None)
    assert workload.name == "many-128-durable-64"
    assert workload.variants == (KAFKA_DURABLE, PENSTOCK_DURABLE)
    (alone,) = chosen_workloads(chosen_rows(["many-128-durable-64"]), "penstock")
    assert alone.variants == (PENSTOCK_DURABLE,)


def test_every_row_about_topics_names_its_partitions() -> None:
    texts = {row_text(row) for row in TARGETS}
    assert "128 connections, both durable, 1 partition" in texts
    assert "128 connections, both durable, 64 partitions" in texts
    without = {row.text for row in TARGETS if row.partitions is None}
    assert without == {"memory idle", "memory after load", "cold start to first answer"}


def test_a_disturbed_measurement_is_repeated_and_the_quietest_counts() -> None:
    shares = iter([0.5, 0.2, 0.3, 0.0])
    found = quietest(lambda: sample(others_busy=next(shares)), lambda _text: None)
    assert found is not None
    assert found.others_busy == 0.2
    assert len(list(shares)) == 4 - ATTEMPTS_MAX


def test_a_quiet_measurement_is_not_repeated() -> None:
    shares = iter([0.1, 0.0])
    found = quietest(lambda: sample(others_busy=next(shares)), lambda _text: None)
    assert found is not None
    assert found.others_busy == 0.1


def test_a_measurement_that_failed_twice_is_left_out() -> None:
    def measure() -> Sample:
        raise OracleError("the client timed out")

    said: list[str] = []
    assert quietest(measure, said.append) is None
    assert said == ["failed: the client timed out"] * 2


@pytest.mark.parametrize(("minutes", "rounds"), [(None, 5), (100.0, 5), (35.0, 2), (1.0, 1)])
def test_no_round_begins_that_would_end_too_late(minutes: float | None, rounds: int) -> None:
    clock = [0.0]

    def run(number: int) -> list[Sample]:
        clock[0] += 600
        return [sample(number)]

    written: list[int] = []
    samples = compare(
        run, 5, minutes, lambda found: written.append(len(found)), now=lambda: clock[0]
    )
    assert [one.round_number for one in samples] == list(range(1, rounds + 1))
    assert written == list(range(1, rounds + 1))


def test_the_notes_say_what_flush_messages_is_worth() -> None:
    notes = written_notes([sample()], ["the machine"], "pinned")
    assert any("flush.messages=1" in note and "Few people run it" in note for note in notes)


@pytest.mark.parametrize(
    ("options", "module", "parts"),
    [
        ("'--enable-shared'", "listener.so", ("without profile", "without link", "k compiled")),
        ("'--enable-optimizations' '--with-lto'", "l.py", ("with profile", "with link", "source")),
    ],
)
def test_the_notes_say_how_python_was_built(
    options: str, module: str, parts: tuple[str, ...]
) -> None:
    line = described_build("3.11.7", options, module)
    assert all(part in line for part in parts)


def test_broker_and_client_get_different_cores() -> None:
    assert choose_cores([0, 1]) == Cores(broker=1, client=0)
    assert choose_cores([3]) is None
