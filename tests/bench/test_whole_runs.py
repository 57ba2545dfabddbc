"""Whole runs with client processes, on Penstock and on Apache Kafka: figures, ratios, cleaning."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.bench import Workload, compare, run
from penstock.bench.topics import PREFIX
from penstock.client.cluster import Cluster
from penstock.client.groups.groups import Groups
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import connect
from penstock.core.errors import PenstockError
from tests.oracle.both_brokers import NAMES, BothBrokers

pytestmark = pytest.mark.interop

KINDS = ["produce", "consume", "end-to-end", "groups"]
SMALL = {"size_bytes": 100, "batch_records": 10, "count": 200, "warmup_seconds": 0.2}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothBrokers]:
    with BothBrokers(tmp_path_factory.mktemp) as brokers:
        yield brokers


def open_cluster(bootstrap: str) -> Cluster:
    return Cluster(parse_addresses(bootstrap), lambda at: connect(at, timeout_seconds=30.0))


def left_behind(bootstrap: str) -> list[str]:
    """Topics and groups of measurements; Kafka takes a moment to forget a topic."""
    deadline = time.monotonic() + 10
    with open_cluster(bootstrap) as cluster:
        while True:
            names = [*cluster.describe(None), *(one.group_id for one in Groups(cluster).list_all())]
            found = [name for name in names if name.startswith(PREFIX)]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_measures_and_leaves_nothing(both: BothBrokers, name: str, kind: str) -> None:
    bootstrap = both.named(name).bootstrap
    workload = Workload(kind=kind, clients=2, partitions=4, members=3, **SMALL)  # type: ignore[arg-type]
    measured = run(workload, bootstrap)
    assert measured.records >= 200
    assert measured.latency.count > 0
    assert measured.records_per_second > 0
    assert len(measured.busy_shares) == (4 if kind == "end-to-end" else 2)
    assert left_behind(bootstrap) == []


def test_two_brokers_are_compared_in_turns(both: BothBrokers) -> None:
    seen: list[str] = []
    compared = compare(
        Workload(kind="produce", partitions=2, **SMALL),  # type: ignore[arg-type]
        both.named("penstock").bootstrap,
        both.named("kafka").bootstrap,
        rounds=2,
        watch=lambda part, _progress: seen.append(part.rpartition(": ")[0]),
    )
    order = [one for one, before in zip(seen, [None, *seen], strict=False) if one != before]
    assert [one.split(",")[0] for one in order] == ["round 1 of 2"] * 2 + ["round 2 of 2"] * 2
    assert len(compared.first) == len(compared.second) == 2
    assert {line.name for line in compared.lines()} >= {"throughput", "latency p99"}


def penstock(*arguments: str) -> "subprocess.Popen[str]":
    # Background processes of a shell ignore Ctrl-C, and children inherit that.
    listens = ["env", "--default-signal=INT"]
    return subprocess.Popen(
        [*listens, sys.executable, "-m", "penstock", "bench", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_compares_and_writes_both_reports(both: BothBrokers, tmp_path: Path) -> None:
    ours, theirs = both.named("penstock").bootstrap, both.named("kafka").bootstrap
    process = penstock(
        *("produce", "--count", "200", "--batch", "10", "--warmup", "0.2", "--rounds", "1"),
        *("--bootstrap-server", ours, "--against", theirs),
        *("--json", str(tmp_path / "report.json"), "--html", str(tmp_path / "report.html")),
    )
    output, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors
    assert "ratio" in output
    document = json.loads((tmp_path / "report.json").read_text())
    assert [len(document[name]) for name in ("first", "second")] == [1, 1]
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["produce", "groups"])
def test_an_interrupted_run_leaves_nothing(
    both: BothBrokers, kind: str, number: signal.Signals
) -> None:
    bootstrap = both.named("penstock").bootstrap
    process = penstock(kind, "--duration", "60", "--bootstrap-server", bootstrap)

    def is_under_way() -> bool:
        if kind == "groups":
            names = [one.group_id for one in Groups(cluster).list_all()]
        else:
            names = list(cluster.describe(None))
        return any(name.startswith(PREFIX) for name in names)

    try:
        with open_cluster(bootstrap) as cluster:
            deadline = time.monotonic() + 60
            while not is_under_way():
                assert time.monotonic() < deadline, "nothing was made"
                time.sleep(0.05)
        process.send_signal(number)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 130
    assert left_behind(bootstrap) == []


def test_a_client_that_fails_ends_the_run_with_its_words(both: BothBrokers) -> None:
    workload = Workload(topic_settings={"max.message.bytes": "50"}, duration_seconds=5.0)
    with pytest.raises(PenstockError, match="MESSAGE_TOO_LARGE"):
        run(workload, both.named("penstock").bootstrap)
