"""Apache Kafka's verifiable clients on three Penstock brokers that are restarted in turn.

    python -m compat.bounces.run [--passes N] [--update] [classic | consumer | copy …]

The scenarios of Kafka's system tests, without their machines: VerifiableProducer with two
VerifiableConsumers of one group, by each group protocol, and TransactionalMessageCopier. Meanwhile
the brokers are restarted one after the other: first each by SIGTERM (clean), then each by kill -9
(hard), the next one when all replicas are in sync. Each record must arrive once. Clean restarts
must not cause a rebalance.

`--update` writes the lines of a run without a finding into `results.txt`. The exit code is 1 if a
record is lost or doubled, or if a clean restart caused a rebalance.
"""

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from compat.bounces import tools
from compat.bounces.verdicts import (
    Verdict,
    acknowledged,
    assignments,
    is_shared,
    judge_copy,
    judge_group,
)
from tests.oracle.cache import OracleError
from tests.oracle.several_brokers import BrokerCluster

OUTPUT: Final = Path(__file__).resolve().parents[2] / "build" / "compat" / "bounces"
"""The output of all processes, if a scenario found something."""
LEFT_OUT: Final = shutil.ignore_patterns("data", "etcd", "modules")
RESULTS: Final = Path(__file__).resolve().parent / "results.txt"
PARTITIONS: Final = 3
CONSUMERS: Final = 2
THROUGHPUT: Final = 300
COPY_THROUGHPUT: Final = 1_000
SOURCE: Final = "copy-input"
TARGET: Final = "copy-output"
READY_SECONDS_MAX: Final = 60.0
DRAIN_SECONDS_MAX: Final = 90.0
COPY_SECONDS_MAX: Final = 120.0
RECORDS_BEFORE: Final = 500
SETTINGS: Final = {
    "PENSTOCK_CLUSTER__REPLICATION_FACTOR_DEFAULT": "3",
    "PENSTOCK_CLUSTER__MIN_INSYNC_REPLICAS_DEFAULT": "2",
}
_POLL_SECONDS: Final = 0.2

Watch = Callable[[], None]


def wait_for(is_true: Callable[[], bool], text: str, seconds: float) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise OracleError(f"not within {seconds:.0f} s: {text}")
        time.sleep(_POLL_SECONDS)


def restart_in_turn(cluster: BrokerCluster, *, is_clean: bool, watch: Watch) -> None:
    """Each broker once, the next one when all replicas are in sync."""
    for broker in cluster.brokers.values():
        if is_clean:
            code = broker.stop()
            if code != 0:
                raise OracleError(f"a broker ended with {code}:\n{broker.log_text()[-2000:]}")
        else:
            broker.kill()
        broker.start()
        cluster.wait_until_whole()
        watch()


def group_scenario(cluster: BrokerCluster, folder: Path, protocol: str, passes: int) -> Verdict:
    """A producer and two consumers of one group."""
    topic = f"group-{protocol}"
    cluster.create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        consumers = [
            stack.enter_context(
                tools.consumer(
                    folder, cluster.bootstrap, topic, group=topic, protocol=protocol, number=number
                )
            )
            for number in range(CONSUMERS)
        ]
        producer = tools.producer(folder, cluster.bootstrap, topic, throughput=THROUGHPUT)
        stack.enter_context(producer)

        def watch() -> None:
            for one in (producer, *consumers):
                one.require_running()

        def share_count() -> int:
            return sum(assignments(one.events()) for one in consumers)

        def is_under_way() -> bool:
            watch()
            is_calm = is_shared([one.events() for one in consumers], PARTITIONS)
            return is_calm and len(acknowledged(producer.events())) > RECORDS_BEFORE

        wait_for(is_under_way, "the consumers share all partitions", READY_SECONDS_MAX)
        before = share_count()
        for _ in range(passes):
            restart_in_turn(cluster, is_clean=True, watch=watch)
        clean = share_count() - before
        for _ in range(passes):
            restart_in_turn(cluster, is_clean=False, watch=watch)
        hard = share_count() - before - clean
        producer.stop()

        def verdict() -> Verdict:
            return judge_group(producer.events(), [one.events() for one in consumers])

        wait_for(lambda: verdict().lost == 0, "each record is consumed", DRAIN_SECONDS_MAX)
        for one in consumers:
            one.stop()
        found = verdict()
    text = f"{found.other}, {clean} rebalances by clean restarts, {hard} by hard ones"
    return replace(found, other=text, rebalances=clean)


class Copiers:
    """One transactional copier for each partition, started again each time it reached the end."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._is_over = threading.Event()
        self.runs = 0
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._copy, args=(number,)) for number in range(PARTITIONS)
        ]
        for thread in self._threads:
            thread.start()

    def _copy(self, partition: int) -> None:
        while not self._is_over.is_set():
            self._copy_once(partition)

    def _copy_once(self, partition: int) -> None:
        with tools.copier(
            self._folder, self._bootstrap, SOURCE, TARGET, partition=partition
        ) as copier:
            try:
                if copier.wait(COPY_SECONDS_MAX) != 0:
                    self.failures.append(copier.tail())
            except OracleError as error:
                self.failures.append(str(error))
        self.runs += 1

    def finish(self) -> None:
        """End the runs of now, and copy the rest of an input that no longer grows."""
        self.stop()
        for number in range(PARTITIONS):
            self._copy_once(number)

    def stop(self) -> None:
        """Wait for the end of the runs of now."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def copy_scenario(cluster: BrokerCluster, folder: Path, passes: int) -> Verdict:
    """A producer, and copiers of its topic."""
    for name in (SOURCE, TARGET):
        cluster.create_topic(name, PARTITIONS)
    with ExitStack() as stack:
        producer = tools.producer(folder, cluster.bootstrap, SOURCE, throughput=COPY_THROUGHPUT)
        stack.enter_context(producer)
        wait_for(
            lambda: len(acknowledged(producer.events())) > RECORDS_BEFORE,
            "the input has records",
            READY_SECONDS_MAX,
        )
        copiers = Copiers(folder, cluster.bootstrap)
        stack.callback(copiers.stop)
        for is_clean in (True, False):
            for _ in range(passes):
                restart_in_turn(cluster, is_clean=is_clean, watch=producer.require_running)
        producer.stop()
        owed = set(acknowledged(producer.events()).values())
        copiers.finish()
        sent = committed_values(cluster.bootstrap, SOURCE)
        found = judge_copy(sent, committed_values(cluster.bootstrap, TARGET))
    for text in copiers.failures:
        print(text, file=sys.stderr)
    lost = len(owed - set(sent))
    doubled = len(sent) - len(set(sent))
    text = f"{copiers.runs} runs of {PARTITIONS} copiers, {len(copiers.failures)} of them failed"
    return Verdict(found.records, found.lost + lost, found.doubled + doubled, text)


def committed_values(bootstrap: str, topic: str) -> list[str]:
    """All values that a reader of committed records gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none: it only assigns",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    consumer.assign(places)
    values: list[str] = []
    unfinished = set(range(PARTITIONS))
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    try:
        while unfinished and time.monotonic() < deadline:
            for message in consumer.consume(1_000, timeout=0.5):
                error = message.error()
                if error is None:
                    values.append((message.value() or b"").decode())
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition() or 0)
    finally:
        consumer.close()
    if unfinished:
        raise OracleError(f"{topic} could not be read to its end in {DRAIN_SECONDS_MAX:.0f} s")
    return values


def run_scenario(name: str, passes: int) -> Verdict:
    """One scenario on a fresh cluster."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bounces-") as folder,
        BrokerCluster(Path(folder) / "brokers", environment=SETTINGS) as cluster,
    ):
        if name == "copy":
            verdict = copy_scenario(cluster, Path(folder), passes)
        else:
            verdict = group_scenario(cluster, Path(folder), name, passes)
        if not verdict.is_right:
            shutil.copytree(folder, OUTPUT / name, dirs_exist_ok=True, ignore=LEFT_OUT)
        return verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios; 1 if one of them found something."""
    names = ["classic", "consumer", "copy"]
    parser = argparse.ArgumentParser(prog="python -m compat.bounces.run")
    parser.add_argument("scenarios", nargs="*", choices=[*names, []], help="default: all")
    parser.add_argument("--passes", type=int, default=1, help="over all brokers, of each kind")
    parser.add_argument("--update", action="store_true", help="write results.txt")
    options = parser.parse_args(arguments)
    lines = []
    is_right = True
    for name in options.scenarios or names:
        verdict = run_scenario(name, options.passes)
        is_right = is_right and verdict.is_right
        lines.append(f"{name}: {options.passes} clean and {options.passes} hard passes: {verdict}")
        print(lines[-1], flush=True)
    if options.update and is_right:
        RESULTS.write_text("".join(f"{line}\n" for line in lines))
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
