"""`penstock bench`: options become a workload, results are shown, errors reported before a run."""

import json
from pathlib import Path

import pytest

from penstock.bench import runner
from penstock.bench.assignment import Progress
from penstock.bench.comparison import Comparison
from penstock.bench.measurement import ClientResult, Measurement, joined
from penstock.bench.pacing import SECOND_NS
from penstock.bench.workload import Workload
from penstock.cli.bench.view import Rates, line_of, sparkline
from penstock.client.security.options import NO_SECURITY, Security
from tests.cli.conftest import Penstock


class Ran:
    """The calls to the runner."""

    def __init__(self) -> None:
        self.workload = Workload()
        self.bootstraps: list[str] = []
        self.rounds = 0
        self.securities: list[Security] = []

    def run(
        self,
        workload: Workload,
        bootstrap: str,
        *,
        watch: object,
        security: Security = NO_SECURITY,
    ) -> Measurement:
        self.workload = workload
        self.securities.append(security)
        self.bootstraps.append(bootstrap)
        result = ClientResult(records=1000, bytes=10_000, end_ns=SECOND_NS)
        result.latency.record(1500, times=10)
        return joined(workload, bootstrap, [result], cores=4)

    def compare(
        self,
        workload: Workload,
        first: str,
        second: str,
        *,
        rounds: int,
        watch: object,
        security: Security = NO_SECURITY,
        second_security: Security = NO_SECURITY,
    ) -> Comparison:
        self.rounds = rounds
        return Comparison(
            (self.run(workload, first, watch=watch, security=security),),
            (self.run(workload, second, watch=watch, security=second_security),),
        )


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    ran = Ran()
    monkeypatch.setattr(runner, "run", ran.run)
    monkeypatch.setattr(runner, "compare", ran.compare)
    return ran


def test_options_become_a_workload(penstock: Penstock, ran: Ran) -> None:
    done = penstock(
        *("bench", "produce", "--size", "50", "--batch", "7", "--clients", "3"),
        *("--duration", "4", "--warmup", "1", "--acks", "1", "--compression", "lz4"),
        *("--partitions", "6", "--keys", "zipf", "--key-count", "9", "--rate", "100"),
        *("--in-flight", "2", "--topic-config", "retention.ms=1000", "--timeout", "9"),
    )
    assert done.code == 0
    assert ran.workload == Workload(
        kind="produce",
        size_bytes=50,
        batch_records=7,
        clients=3,
        partitions=6,
        duration_seconds=4,
        warmup_seconds=1,
        acks=1,
        compression="lz4",
        keys="zipf",
        key_count=9,
        rate=100,
        in_flight=2,
        topic_settings={"retention.ms": "1000"},
        timeout_seconds=9,
    )
    assert ran.bootstraps == ["localhost:9092"]


@pytest.mark.parametrize("kind", ["produce", "consume", "end-to-end", "groups"])
def test_each_kind_shows_figures_and_a_histogram(penstock: Penstock, kind: str) -> None:
    done = penstock("bench", kind)
    assert done.code == 0
    assert done.output.startswith(f"{kind}: ")
    assert "latency p99" in done.output
    assert "1 ms - 2 ms" in done.output


def test_groups_have_a_partition_for_each_member(penstock: Penstock, ran: Ran) -> None:
    penstock("bench", "groups", "--members", "5")
    assert (ran.workload.members, ran.workload.partitions) == (5, 5)


def test_two_are_compared(penstock: Penstock, ran: Ran) -> None:
    done = penstock("bench", "produce", "--against", "there:1", "--rounds", "4")
    assert (ran.rounds, ran.bootstraps) == (4, ["localhost:9092", "there:1"])
    assert "1.00..1.00" in done.output
    assert "rounds disagree" in done.output


def test_reports_are_written(penstock: Penstock, tmp_path: Path) -> None:
    json_path, html_path = tmp_path / "r.json", tmp_path / "r.html"
    done = penstock("bench", "produce", "--json", str(json_path), "--html", str(html_path))
    assert json.loads(json_path.read_text())["records"] == 1000
    assert html_path.read_text().startswith("<!doctype html>")
    assert str(html_path) in done.errors


def test_json_on_standard_output_is_alone_there(penstock: Penstock) -> None:
    assert json.loads(penstock("bench", "produce", "--json", "-").output)["requests"] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("produce", "--duration", "0.1"), "too short to mean anything"),
        (("produce", "--topic", "t", "--partitions", "3"), "stays as it is"),
        (("consume", "--rate", "5"), "No such option"),
        (("produce", "--html", "no/such/folder/r.html"), "its folder does not exist"),
        (("produce", "--clients", "0"), "clients 0 is outside"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    penstock: Penstock, ran: Ran, words: tuple[str, ...], told: str
) -> None:
    done = penstock("bench", *words)
    assert done.code == 2
    assert told in done.errors
    assert ran.bootstraps == []


def test_nobody_there_is_exit_code_three(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    done = penstock("bench", "produce", "--bootstrap-server", "localhost:1")
    assert done.code == 3
    assert "penstock serve" in done.errors


def test_the_live_line_tells_records_rate_and_tail() -> None:
    rates = Rates()
    progress = [Progress(400, 1, 900), Progress(600, 1, 2_500)]
    for moment in range(4):
        rates.look("measuring", 10.0 + moment, moment * 1000)
    line = line_of("measuring", progress, rates, "records")
    assert line == "measuring: 1,000 records  1,000/s  p99 2.50 ms  ███"
    rates.look("filling", 20.0, 5)
    assert list(rates.recent) == []


def test_a_sparkline_grows_with_its_values() -> None:
    assert sparkline([1, 4, 8]) == "▁▄█"
    assert sparkline([]) == ""


@pytest.mark.parametrize("option", ["--bootstrap-server", "--against"])
def test_a_malformed_address_is_wrong_usage(penstock: Penstock, ran: Ran, option: str) -> None:
    done = penstock("bench", "produce", option, "localhost:nine")
    assert done.code == 2
    assert option in done.errors
    assert ran.bootstraps == []


@pytest.mark.parametrize("kind", ["produce", "groups"])
def test_no_partitions_are_refused(penstock: Penstock, ran: Ran, kind: str) -> None:
    done = penstock("bench", kind, "--partitions", "0")
    assert done.code == 2
    assert "partitions" in done.errors
    assert ran.bootstraps == []


def test_each_broker_has_its_own_settings(penstock: Penstock, ran: Ran, tmp_path: Path) -> None:
    first, second = tmp_path / "first.properties", tmp_path / "second.properties"
    first.write_text("security.protocol=SSL\n")
    second.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=b\n"
    )
    files = ("--command-config", str(first), "--against-config", str(second))
    assert penstock("bench", "produce", "--against", "other:9092", *files).code == 0
    assert [one.protocol for one in ran.securities] == ["SSL", "SASL_PLAINTEXT"]
