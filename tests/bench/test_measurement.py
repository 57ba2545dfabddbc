"""Results of clients added up, the doubts that belong to them, and ratios with their spread."""

import json

import pytest

from penstock.bench.comparison import Comparison, summed
from penstock.bench.histogram import Histogram
from penstock.bench.measurement import ClientResult, Measurement, joined, latency_meaning
from penstock.bench.pacing import SECOND_NS
from penstock.bench.timeline import Timeline
from penstock.bench.workload import Workload


def result(
    records: int = 1000,
    *,
    seconds: float = 2.0,
    latencies_us: tuple[int, ...] = (100, 200, 300),
    busy: float = 0.2,
    waiting: float = 0.0,
) -> ClientResult:
    latency, timeline = Histogram(), Timeline()
    for one in latencies_us:
        latency.record(one)
    timeline.add(10, records)
    return ClientResult(
        records=records,
        bytes=records * 100,
        requests=len(latencies_us),
        begin_ns=5,
        end_ns=5 + round(seconds * SECOND_NS),
        cpu_seconds=busy * seconds,
        wall_seconds=seconds,
        waiting_seconds=waiting * seconds,
        latency=latency,
        timeline=timeline,
    )


def measured(*results: ClientResult, workload: Workload | None = None) -> Measurement:
    return joined(workload or Workload(), "here:9092", results, cores=8)


def test_clients_add_up() -> None:
    both = measured(result(1000), result(500, latencies_us=(9000,)))
    assert (both.records, both.bytes, both.requests) == (1500, 150_000, 4)
    assert both.records_per_second == 750
    assert both.megabytes_per_second == pytest.approx(0.075)
    assert both.latency.count == 4
    assert both.latency.max_us == 9000
    assert sum(both.timeline.counts) == 1500
    assert both.notes == ()


def test_the_slowest_client_ends_the_run() -> None:
    assert measured(result(seconds=2), result(seconds=4)).records_per_second == 500


@pytest.mark.parametrize(
    ("one", "workload", "words"),
    [
        (result(busy=0.9), Workload(), "The load generator was the limit"),
        (result(waiting=0.3), Workload(), "waited 30% of the time for a processor"),
        (result(1000), Workload(rate=1000.0), "The rate was not kept: 500 of 1,000"),
        (result(), Workload(acks=0), "With acks=0 nothing is acknowledged"),
    ],
)
def test_what_must_be_doubted_is_said(one: ClientResult, workload: Workload, words: str) -> None:
    (note,) = measured(one, workload=workload).notes
    assert words in note


def test_clients_that_need_most_cores_are_told_of() -> None:
    notes = joined(Workload(), "here", [result(busy=0.8)] * 2, cores=1).notes
    assert "used 1.6 of this machine's 1 cores" in notes[0]


def test_a_kept_rate_is_no_doubt() -> None:
    assert measured(result(1000), workload=Workload(rate=505.0)).notes == ()


def test_latency_is_named_for_what_it_is() -> None:
    assert latency_meaning(Workload()).startswith("one request: from sending it")
    assert "the time it was due" in latency_meaning(Workload(rate=5.0))


def test_the_document_is_json_with_everything() -> None:
    document = json.loads(json.dumps(measured(result()).document()))
    assert document["latency_microseconds"]["p50"] == 200
    assert document["workload"]["kind"] == "produce"
    assert document["histogram"]["count"] == 3


def test_ratios_are_formed_round_by_round() -> None:
    slow, fast = result(1000, latencies_us=(400,)), result(3000, latencies_us=(100,))
    compared = Comparison(
        (measured(fast), measured(fast), measured(slow)),
        (measured(slow), measured(slow), measured(slow)),
    )
    by_name = {line.name: line for line in compared.lines()}
    line = by_name["throughput"]
    assert (line.ratio, line.ratio_low, line.ratio_high) == (3, 1, 3)
    assert not line.rounds_agree
    assert by_name["latency p50"].ratio == 0.25
    assert json.loads(json.dumps(compared.document()))["ratios"][0]["name"] == "throughput"


def test_rounds_that_agree_say_so() -> None:
    compared = Comparison((measured(result(2000)),), (measured(result(1000)),))
    assert compared.lines()[0].rounds_agree
    assert compared.lines()[0].ratio == 2


def test_notes_of_both_are_told_once_with_whose_they_are() -> None:
    busy = measured(result(busy=0.95))
    assert len(Comparison((busy, busy), (measured(result()),) * 2).notes()) == 1


def test_rounds_are_summed_by_merging_not_by_averaging() -> None:
    total = summed([measured(result(latencies_us=(1,))), measured(result(latencies_us=(1000,)))])
    assert (total.latency.count, total.latency.max_us, total.records) == (2, 1000, 2000)
