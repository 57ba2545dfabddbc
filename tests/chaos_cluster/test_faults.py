"""Clients of four languages on three brokers, under all faults in a seeded order.

After each fault every producer has records acknowledged again within 15 seconds of its end, and at
the end of a run: no acknowledged record is lost or doubled, the order of each producer is kept, the
history checker finds nothing forbidden, all replicas are in sync, and the files of all replicas are
equal, byte for byte (marker `cluster_chaos`).

PENSTOCK_SECONDS is the length of the load, 60 by default; the proof has ten runs of 180 seconds.
PENSTOCK_FAULTS names the faults instead of all. PENSTOCK_SEED repeats a failure.
"""

import contextlib
import dataclasses
import os
import random
import time
from pathlib import Path

import pytest

from tests.chaos_cluster.cluster import Cluster
from tests.chaos_cluster.faults import ETCD_DOWN_SECONDS, Faults
from tests.chaos_cluster.test_power_of_all import require_equal_replicas
from tests.chaos_cluster.workload import Gaps, HistoryLoad, LedgerLoad
from tests.crash.ledger import summary
from tests.crash.rounds import IS_PROOF, seed_of_this_run
from tests.histories.plan import Library, Plan
from tests.histories.run import Result

pytestmark = [pytest.mark.cluster_chaos, pytest.mark.timeout(3_600)]

SECONDS = float(os.environ.get("PENSTOCK_SECONDS", "180" if IS_PROOF else "60"))
RUNS = int(os.environ.get("PENSTOCK_RUNS", "10" if IS_PROOF else "1"))
NAMED = tuple(filter(None, os.environ.get("PENSTOCK_FAULTS", "").split(",")))
QUIET_SECONDS_MAX = 2.0
FIRST_PROGRESS_SECONDS = 45.0
LEDGER_PRODUCERS = ("confluent-kafka", "kafka-python", "java", "franz-go", "kafkajs")
"""Libraries of four languages."""
RDKAFKA: tuple[Library, ...] = ("confluent-kafka",) * 3
MODES: tuple[dict[str, object], ...] = (
    {"libraries": RDKAFKA, "via": "subscribe", "in_transactions": True, "protocol": "consumer"},
    {
        "libraries": ("confluent-kafka", "confluent-kafka", "kafka-python"),
        "via": "subscribe",
        "in_transactions": True,
    },
    {"libraries": ("confluent-kafka", "kafka-python", "aiokafka"), "in_transactions": True},
    {"libraries": RDKAFKA, "via": "subscribe", "protocol": "consumer"},
)


@dataclasses.dataclass(frozen=True)
class Happened:
    """One fault and its price."""

    name: str
    gaps: Gaps
    progress_seconds: float
    """From its end until every producer had records acknowledged."""


def plan_of(number: int, seed: int) -> Plan:
    mode = MODES[number % len(MODES)]
    return dataclasses.replace(
        Plan(seed=seed, seconds=SECONDS, faults=()),
        **mode,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("number", range(RUNS))
def test_no_fault_loses_or_doubles_a_record(tmp_path: Path, number: int) -> None:
    seed = seed_of_this_run() + number
    dice = random.Random(f"{seed}/faults")
    with Cluster(tmp_path) as cluster, contextlib.ExitStack() as stack:
        faults = Faults(
            cluster, dice, etcd_down_seconds=(60, 60) if IS_PROOF else ETCD_DOWN_SECONDS
        )
        ledger = LedgerLoad(cluster, seed, LEDGER_PRODUCERS)
        stack.callback(ledger.abandon)
        histories = HistoryLoad(cluster, plan_of(number, seed))
        stack.callback(histories.abandon)
        ledger.wait_for_progress(FIRST_PROGRESS_SECONDS)
        happened = make_faults(faults, ledger, dice)
        cluster.wait_until_whole()
        cluster.require_running()
        result = histories.finish([one.name for one in happened])
        ledger.stop()
        require_nothing_broken(ledger, result)
        require_equal_replicas(cluster)
    print(f"run {number}, seed {seed}: {len(happened)} faults, {ledger.ledger.totals}, 0 lost")


def make_faults(faults: Faults, ledger: LedgerLoad, dice: random.Random) -> list[Happened]:
    """Faults until the time is over, each with its progress."""
    deadline = time.monotonic() + SECONDS
    happened: list[Happened] = []
    names = iter(NAMED) if NAMED else faults.order()
    for name in names:
        if time.monotonic() > deadline:
            break
        time.sleep(dice.uniform(0.2, QUIET_SECONDS_MAX))
        begun = time.monotonic()
        try:
            faults.kinds[name]()
            progress_seconds = ledger.wait_for_progress()
        except Exception as error:
            error.add_note(f"in fault {len(happened)}, {name}, after {happened}")
            raise
        gaps = ledger.ledger.gaps(begun, time.monotonic())
        happened.append(Happened(name, gaps, progress_seconds))
        print(
            f"fault {name}: {time.monotonic() - begun:.1f} s, longest time without acknowledgement "
            f"{gaps.one_partition_seconds:.1f} s in one, {gaps.all_seconds:.1f} s of all, "
            f"progress {progress_seconds:.1f} s after its end",
            flush=True,
        )
    return happened


def require_nothing_broken(ledger: LedgerLoad, result: Result) -> None:
    """The ledger and the history, each with its whole report."""
    print(result.line(), flush=True)
    violations = ledger.violations()
    assert not violations, summary(violations)
    given_up = ledger.ledger.given_up
    assert not given_up, f"clients gave up: {given_up[:5]}"
    assert result.is_valid, f"{result.report.text()}\nhistory: {result.saved}"
