"""Spark and tables through a failover: leaders are killed, and each record is there once.

Three brokers with three replicas of each partition. Each round kills (kill -9) the leader of a
partition that the job needs: of its topic, of its output, of the decisions of the sink, or of the
transactions. In every second round the broker stays away until the job has committed a batch
without it; in the others it starts again at once. At the end:

- each value that was acknowledged to a producer, or whose transaction was committed, is in the
  topic once, and none of an aborted transaction is visible;
- the output of the query with the exactly-once sink, or the table and its table of bad records
  (Iceberg and Delta, by `penstock table run`), has each committed record of the topic once;
- no job ended because of a failover.

Two rounds each; twenty with PENSTOCK_PROOF=1, or as many as PENSTOCK_FAILOVER_ROUNDS says
(`make spark-failover`). PENSTOCK_SEED repeats the choices of a run.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.oracle.several_brokers import BrokerCluster
from tests.spark.failover.failover_feeder import AckedFeeder
from tests.spark.failover.failover_jobs import (
    OUTPUT,
    OUTPUT_PARTITIONS,
    TOPIC,
    Job,
    SinkJob,
    TableJob,
    wait_until_drained,
)
from tests.spark.streams import topic_reader
from tests.spark.tables.pipeline_feeder import PARTITIONS, Ledger
from tests.spark.tables.pipeline_world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3_600)]

IS_PROOF: Final = os.environ.get("PENSTOCK_PROOF") == "1"
ROUNDS: Final = int(os.environ.get("PENSTOCK_FAILOVER_ROUNDS", "20" if IS_PROOF else "2"))
SEED: Final = int(os.environ.get("PENSTOCK_SEED", "1"))
SETTINGS: Final = {
    "PENSTOCK_CLUSTER__REPLICATION_FACTOR_DEFAULT": "3",
    "PENSTOCK_CLUSTER__MIN_INSYNC_REPLICAS_DEFAULT": "2",
}
BATCHES_BEFORE_MAX: Final = 2
AWAY_SECONDS_MAX: Final = 2.0
READ_SECONDS_MAX: Final = 180.0
QUIET_SECONDS: Final = 5.0
"""Without a further record, the reader of a topic is at its end."""


@contextmanager
def fed_cluster(folder: Path) -> Iterator[tuple[BrokerCluster, AckedFeeder]]:
    """Three brokers with the topic and the output, and the feeder of the topic."""
    with BrokerCluster(folder / "brokers", environment=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        cluster.create_topic(OUTPUT, OUTPUT_PARTITIONS)
        feeder = AckedFeeder(cluster.bootstrap, TOPIC, SEED)
        try:
            yield cluster, feeder
        finally:
            feeder.stop()


def kill_leaders(cluster: BrokerCluster, job: Job, rounds: int) -> None:
    """The rounds; at their end all brokers run and all replicas are in sync."""
    dice = random.Random(SEED)
    job.start()
    for number in range(rounds):
        job.wait_for_batches(dice.randint(1, BATCHES_BEFORE_MAX))
        time.sleep(dice.uniform(0, 0.5))
        topic, partition = chosen_partition(cluster, job, dice)
        leader = cluster.leader_of(topic, partition)
        begun, before = time.monotonic(), job.batches()
        cluster.brokers[leader].kill()
        if number % 2:
            job.wait_for_batches(1)
        else:
            time.sleep(dice.uniform(0, AWAY_SECONDS_MAX))
        without = job.batches() - before
        cluster.brokers[leader].start()
        job.wait_for_batches(1)
        waited = time.monotonic() - begun
        cluster.wait_until_whole()
        print(
            f"round {number}: broker {leader}, leader of {topic}-{partition}, {without} batches "
            f"while it was away, {waited:.1f} s until the next batch after its return",
            flush=True,
        )


def chosen_partition(cluster: BrokerCluster, job: Job, dice: random.Random) -> tuple[str, int]:
    """A partition of a topic that the job needs."""
    view = cluster.view()
    assert view is not None, "no broker answers between two rounds"
    topic = dice.choice([name for name in job.topics if name in view.topics])
    return topic, dice.choice(sorted(view.topics[topic].partitions))


def values_of(cluster: BrokerCluster, topic: str, partitions: int, at_least: int) -> Counter[bytes]:
    """The values that a reader of committed records gets."""
    deadline = time.monotonic() + READ_SECONDS_MAX
    with topic_reader(cluster.bootstrap, topic, partitions=partitions) as reader:
        while reader.poll(QUIET_SECONDS) is not None or len(reader.messages) < at_least:
            if time.monotonic() > deadline:
                break
        return Counter(one.value() or b"" for one in reader.messages)


def judge_topic(feeder: AckedFeeder, found: Counter[bytes]) -> None:
    """The topic itself: nothing acknowledged is missing, nothing is doubled or taken back."""
    assert not feeder.given_up, feeder.given_up[:3]
    assert feeder.owed, "nothing was acknowledged"
    lost = [value for value in feeder.owed if not found[value]]
    doubled = [value for value, count in found.items() if count > 1]
    visible = [value for value in feeder.aborted if found[value]]
    assert not lost, f"{len(lost)} acknowledged values lost: {lost[:3]}"
    assert not doubled, f"{len(doubled)} values doubled: {doubled[:3]}"
    assert not visible, f"{len(visible)} values of aborted transactions: {visible[:3]}"


def test_the_sink_writes_each_record_once_through_failovers(tmp_path: Path) -> None:
    with fed_cluster(tmp_path) as (cluster, feeder):
        job = SinkJob(tmp_path, bootstrap=cluster.bootstrap)
        try:
            kill_leaders(cluster, job, ROUNDS)
            feeder.stop()
            sent = values_of(cluster, TOPIC, PARTITIONS, len(feeder.owed))
            found = values_of(cluster, OUTPUT, OUTPUT_PARTITIONS, sent.total())
        finally:
            job.close()
    judge_topic(feeder, sent)
    expected = Counter({b"seen " + value: count for value, count in sent.items()})
    missing, doubled = (expected - found).total(), (found - expected).total()
    print(
        f"{ROUNDS} leaders killed under the exactly-once sink: {len(feeder.owed)} records "
        f"acknowledged, {sent.total()} in the topic, {job.batches()} batches, "
        f"{missing} missing, {doubled} doubled, {job.restarts} restarts of the query"
    )
    assert (missing, doubled) == (0, 0)
    assert job.restarts == 0, job.tail()


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_a_table_has_each_record_once_through_failovers(format_: str, tmp_path: Path) -> None:
    with fed_cluster(tmp_path) as (cluster, feeder):
        world = World(tmp_path, format_, cluster.bootstrap, TOPIC)
        job = TableJob(tmp_path, world=world)
        ledger = Ledger(cluster.bootstrap, TOPIC)
        try:
            kill_leaders(cluster, job, ROUNDS)
            feeder.stop()
            found = ledger.compare(world, wait_until_drained(job, cluster))
            sent = values_of(cluster, TOPIC, PARTITIONS, len(feeder.owed))
        finally:
            job.close()
            ledger.close()
    judge_topic(feeder, sent)
    print(
        f"{ROUNDS} leaders killed under penstock table run into {format_}: {len(feeder.owed)} "
        f"records acknowledged, {found}, {job.restarts} restarts of the pipeline"
    )
    assert found.is_right, str(found)
    assert found.records == sent.total()
    assert job.restarts == 0, job.tail()
