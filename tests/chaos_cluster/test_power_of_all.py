"""All brokers lose power at once, under load, again and again (marker `cluster_chaos`).

A round: load; the machines of all three brokers are off the network, their processes stand still,
and their disks are shut down by the kernel without flushing; the processes are killed, the disks
are mounted, the brokers start. In every third round etcd's members lose power too. Nothing that was
acknowledged or shown to a consumer may be gone, nothing may be there twice; at the end the files of
all replicas are equal.

The counter-proof runs the same with `flush = os`, where acknowledged records are lost: the cut is
real. PENSTOCK_ROUNDS is the number of rounds, 3 by default and 100 in the proof. PENSTOCK_SEED
repeats a failure.
"""

import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos_cluster.cluster import BROKERS, REPLICAS, Cluster
from tests.chaos_cluster.machines import Machine, cut_power_of_all
from tests.chaos_cluster.replicas import compare_by_kafka, compare_replicas
from tests.chaos_cluster.workload import LedgerLoad
from tests.crash.clients import PARTITIONS, PRODUCERS, TOPIC
from tests.crash.ledger import summary
from tests.crash.rounds import IS_PROOF, seed_of_this_run

pytestmark = [pytest.mark.cluster_chaos, pytest.mark.timeout(7_200)]

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "100" if IS_PROOF else "3"))
ETCD_EVERY = 3
LOAD_SECONDS_MAX = 1.5
LATE_STOP = "the stop did not end within"
AFTER_POWER_SECONDS_MAX = 45.0
"""Brokers start, load their logs, register and elect; etcd starts before them in some rounds."""


@pytest.fixture
def load_seed() -> int:
    return seed_of_this_run()


def cut_all(cluster: Cluster, *, with_etcd: bool) -> None:
    """No power anywhere; then power, and everything starts by itself."""
    machines: list[Machine] = list(cluster.brokers.values())
    if with_etcd:
        machines += cluster.etcd
    cut_power_of_all(machines)
    for machine in machines:
        machine.restore_power()
    cluster.heal()


@contextmanager
def running_load(
    cluster: Cluster, seed: int, settings: Mapping[str, str] | None = None
) -> Iterator[LedgerLoad]:
    load = LedgerLoad(cluster, seed, PRODUCERS, settings)
    try:
        load.wait_for_progress(AFTER_POWER_SECONDS_MAX)
        yield load
    finally:
        load.abandon()


def test_nothing_acknowledged_is_lost_when_all_brokers_lose_power(
    tmp_path: Path, load_seed: int
) -> None:
    dice = random.Random(load_seed)
    with Cluster(tmp_path) as cluster:
        with running_load(cluster, load_seed) as load:
            waits = [one_round(cluster, load, dice, number) for number in range(ROUNDS)]
            load.stop()
            violations = load.violations()
            assert not violations, summary(violations)
            given_up = load.ledger.given_up
            assert not given_up, f"clients gave up: {given_up[:5]}"
            totals = load.ledger.totals
        require_equal_replicas(cluster)
    print(
        f"{ROUNDS} power cuts of all {BROKERS} brokers: {totals}, 0 lost, 0 doubled; "
        f"longest wait {max(waits):.1f} s"
    )


def one_round(cluster: Cluster, load: LedgerLoad, dice: random.Random, number: int) -> float:
    """Load, a cut, progress, a check of everything; returns the wait for progress."""
    time.sleep(dice.uniform(0.1, LOAD_SECONDS_MAX))
    with_etcd = number % ETCD_EVERY == ETCD_EVERY - 1
    cut_all(cluster, with_etcd=with_etcd)
    wait = load.wait_for_progress(AFTER_POWER_SECONDS_MAX)
    violations = load.violations()
    assert not violations, f"round {number}: {summary(violations)}"
    etcd = " and etcd" if with_etcd else ""
    print(
        f"round {number}: all brokers{etcd} without power, records acknowledged {wait:.1f} s "
        f"after it came back; {load.ledger.totals}",
        flush=True,
    )
    return wait


def require_equal_replicas(cluster: Cluster) -> None:
    """Stop all brokers in order and compare their files."""
    cluster.wait_until_whole()
    for broker in cluster.brokers.values():
        assert broker.stop() == 0, f"{broker.name} did not stop: {broker.log_text()[-2000:]}"
        assert LATE_STOP not in broker.log_text(), f"{broker.name} could not end its stop"
    data_dirs = {number: broker.data_dir for number, broker in cluster.brokers.items()}
    comparison = compare_replicas(data_dirs, REPLICAS)
    assert not comparison.differences, "\n".join(comparison.differences)
    if IS_PROOF:
        differences = compare_by_kafka(data_dirs, TOPIC)
        assert not differences, "\n".join(differences)
    print(f"replicas equal: {comparison.partitions} partitions, {comparison.batches} batches")


def has_leaders(cluster: Cluster) -> bool:
    view = cluster.view()
    return view is not None and all(
        view.partitions[TOPIC, number].leader in cluster.brokers for number in range(PARTITIONS)
    )


def test_the_cut_of_all_is_real(tmp_path: Path, load_seed: int) -> None:
    """Without a sync before the acknowledgement the same cut does lose acknowledged records.

    Replicas that stopped uncleanly in this mode are not elected: the topic allows it here, so that
    the loss can be read.
    """
    settings = {"unclean.leader.election.enable": "true"}
    with (
        Cluster(tmp_path, settings='[flush]\nmode = "os"\n') as cluster,
        running_load(cluster, load_seed, settings) as load,
    ):
        cut_all(cluster, with_etcd=False)
        load.abandon()
        cluster.wait(lambda: has_leaders(cluster), "every partition of the ledger has a leader")
        lost = [text for text in load.violations() if text.startswith("lost")]
        assert lost, "nothing was lost: the cut does not bite"
        print(f"flush os, one power cut of all: {len(lost)} acknowledged records lost")
