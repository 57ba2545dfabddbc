"""The shared part of all foreign suites: the choice of the broker, and the check of the results.

A suite is a folder with `run.py` and two lists of test names. `passes_on_kafka.txt` lists the tests
that pass on Apache Kafka when run in the same way: the goal. `passes_on_penstock.txt` lists the
tests that have passed here: it only grows. A run fails when a test of that list does not pass any
more. Tests that pass on Kafka and not here are printed each time; FINDINGS.md of the suite has the
reasons.

This module does NOT build a suite or parse its output: `run.py` does.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.penstock_broker import penstock_broker, penstock_environment
from tests.oracle.several_brokers import BrokerCluster

SMALL_CLUSTER = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}
"""The settings of the oracle's Kafka; Penstock gets the same, so that both run equally fast."""


class Result(StrEnum):
    """How one test of a suite ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


Results = Mapping[str, Result]

REPLICAS_MAX = 3


def replication_factor(bootstrap: str) -> int:
    """Return the replicas of the topics of a suite: one on each address, up to three."""
    return min(REPLICAS_MAX, len(bootstrap.split(",")))


@dataclass(frozen=True)
class Suite:
    """A foreign suite."""

    name: str
    folder: Path
    run: Callable[[str, Sequence[str]], Results]
    """Runs it against a bootstrap address, only the tests named (all when none), in a way that
    gives the same names each time."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Settings of the broker, with Kafka's names. Penstock gets the settings that it supports."""
    is_launching: bool = False
    """The suite starts brokers itself: `run` gets their kind, `kafka` or `penstock`, instead of an
    address. Its lists are named `passes_on_*_launch.txt`."""

    def _list_of(self, broker: str) -> Path:
        ending = "_launch" if self.is_launching else ""
        return self.folder / f"passes_on_{broker}{ending}.txt"

    @property
    def kafka_list(self) -> Path:
        """Return the list of tests that pass on Apache Kafka."""
        return self._list_of("kafka")

    @property
    def penstock_list(self) -> Path:
        """Return the list of tests that have passed on Penstock."""
        return self._list_of("penstock")


@dataclass(frozen=True)
class Verdict:
    """The result of a run, compared with the lists."""

    passed: frozenset[str]
    lost: frozenset[str]
    """Passed here before, and not now."""
    behind: frozenset[str]
    """Passes on Kafka, and never passed here."""


def judge(results: Results, on_kafka: frozenset[str], before: frozenset[str]) -> Verdict:
    """Return the verdict on a run on Penstock. Tests that were not run are ignored."""
    passed = frozenset(name for name, result in results.items() if result is Result.PASSED)
    ran = frozenset(results)
    return Verdict(
        passed=passed,
        lost=(before & ran) - passed,
        behind=(on_kafka & ran) - passed - before,
    )


def read_names(path: Path) -> frozenset[str]:
    """Return the names in a list, one on each line; empty without the file."""
    if not path.exists():
        return frozenset()
    return frozenset(line for line in path.read_text().splitlines() if line)


def write_names(path: Path, names: frozenset[str]) -> None:
    """One name on each line, sorted."""
    path.write_text("".join(f"{name}\n" for name in sorted(names)))


def _parse(suite: Suite, arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m compat.{suite.folder.name}.{'launch' if suite.is_launching else 'run'}"
    )
    parser.add_argument("tests", nargs="*", help="names to run; all when none is given")
    parser.add_argument("--broker", choices=["penstock", "kafka"], default="penstock")
    if not suite.is_launching:
        parser.add_argument("--bootstrap-server", help="brokers that run already")
        parser.add_argument(
            "--brokers", type=int, default=1, metavar="N", help="a Penstock cluster of N brokers"
        )
    parser.add_argument("--update", action="store_true", help="add passed tests to the list")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result")
    return parser.parse_args(arguments)


@contextmanager
def _broker(suite: Suite, options: argparse.Namespace, folder: Path) -> Iterator[str]:
    """The addresses of the brokers, which run until the end of the block."""
    settings = penstock_environment({**SMALL_CLUSTER, **suite.properties})
    if suite.is_launching:
        yield options.broker
    elif options.bootstrap_server:
        yield options.bootstrap_server
    elif options.broker == "kafka":
        with kafka_broker(folder, properties=suite.properties) as broker:
            yield broker.bootstrap
    elif options.brokers > 1:
        with BrokerCluster(folder, count=options.brokers, environment=settings) as cluster:
            yield cluster.bootstrap
    else:
        with penstock_broker(folder, environment=settings) as broker:
            yield broker.bootstrap


def main(suite: Suite, arguments: Sequence[str] | None = None) -> int:
    """Run the suite; 0 when nothing that passed before is lost."""
    options = _parse(suite, sys.argv[1:] if arguments is None else arguments)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-compat-") as folder,
        _broker(suite, options, Path(folder) / "broker") as bootstrap,
    ):
        results = suite.run(bootstrap, options.tests)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    counts = {kind: sum(1 for found in results.values() if found is kind) for kind in Result}
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"{suite.name} on {options.broker}: {told}")
    if not results:
        print("nothing ran: the suite's own output says why")
        return 2
    if options.broker == "kafka":
        return _keep_kafka(suite, results, update=options.update)
    return _tell(suite, results, update=options.update)


def _keep_kafka(suite: Suite, results: Results, *, update: bool) -> int:
    passed = frozenset(name for name, result in results.items() if result is Result.PASSED)
    if update:
        write_names(suite.kafka_list, (read_names(suite.kafka_list) - set(results)) | passed)
    for name in sorted(set(results) - passed):
        print(f"  {results[name]:8} {name}")
    return 0


def _tell(suite: Suite, results: Results, *, update: bool) -> int:
    before = read_names(suite.penstock_list)
    verdict = judge(results, read_names(suite.kafka_list), before)
    for name in sorted(verdict.behind):
        print(f"  passes on Kafka, not here: {name}")
    for name in sorted(verdict.lost):
        print(f"  LOST: passed here before: {name}")
    if update:
        write_names(suite.penstock_list, before | verdict.passed)
    return 1 if verdict.lost else 0
