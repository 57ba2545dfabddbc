"""`penstock serve --workers` with real processes: each of them may end at any time."""

import os
import re
import signal
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.node.workers.supervised import SECONDS_MAX, Supervised

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PARTITIONS = 4
QUIET = {"log_level": 0}


def until(is_met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_met():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


class Load:
    """Numbered records to each partition, with acks=all, until it is left."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(SECONDS_MAX)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "delivery.timeout.ms": 60_000,
                **QUIET,
            }
        )
        number = 0
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                producer.produce(
                    "t", str(number).encode(), partition=partition, on_delivery=self._delivered
                )
                number += 1
            producer.poll(0)
            time.sleep(0.005)
        assert producer.flush(SECONDS_MAX) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        value, partition = message.value(), message.partition()
        assert value is not None
        assert partition is not None
        self.acknowledged[partition].append(int(value))

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def grow(self) -> None:
        """Wait for more acknowledgements from each partition."""
        before = {partition: len(self.acknowledged[partition]) for partition in range(PARTITIONS)}
        until(lambda: all(len(self.acknowledged[one]) > before[one] for one in before))


def stored(bootstrap: str) -> dict[int, list[int]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True, **QUIET}
    )
    consumer.assign([TopicPartition("t", one, 0) for one in range(PARTITIONS)])
    found: dict[int, list[int]] = defaultdict(list)
    ended: set[int] = set()
    deadline = time.monotonic() + SECONDS_MAX
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        if message is None:
            continue
        partition, value = message.partition(), message.value()
        assert partition is not None
        if message.error():
            ended.add(partition)
        else:
            assert value is not None
            found[partition].append(int(value))
    consumer.close()
    return found


def test_nothing_acknowledged_is_lost_when_any_process_ends(tmp_path: Path) -> None:
    with Supervised(tmp_path, 2) as supervised:
        assert supervised.start().startswith(f"Penstock is ready on {supervised.bootstrap} after ")
        with Load(supervised.bootstrap) as load:
            load.grow()
            for worker in (1, 2):
                other = 3 - worker
                os.kill(supervised.state(worker, other)["pid"], signal.SIGKILL)
                until(lambda: supervised.is_back(worker, other))  # noqa: B023 (used at once)
                load.grow()
            workers = [one["pid"] for one in supervised.status()["workers"]]
            assert supervised.end(signal.SIGKILL) == -signal.SIGKILL
            supervised.start()
            assert not any(map(is_alive, workers))
            load.grow()
            assert supervised.end(signal.SIGTERM) == 0
            for worker in (1, 2):
                assert (tmp_path / "data" / f"worker-{worker}" / ".kafka_cleanshutdown").exists()
            supervised.start()
            load.grow()
        assert load.errors == []
        found = stored(supervised.bootstrap)
        assert {one: sorted(found[one]) for one in found} == load.acknowledged
        assert supervised.end(signal.SIGTERM) == 0


def test_one_status_for_all_workers(tmp_path: Path) -> None:
    with Supervised(tmp_path, 2, '[node]\nlog_level = "info"\n') as supervised:
        supervised.start()
        shown = supervised.run("status", "--admin", f"http://127.0.0.1:{supervised.admin_port}")
        assert shown.returncode == 0, shown.stderr
        assert len(re.findall(r"^[12] +Healthy +running +0 ", shown.stdout, re.MULTILINE)) == 2
        first, second = supervised.status()["workers"]
        assert (first["condition"], second["condition"]) == ("running", "running")
        # A signal to one worker restarts it; the others go on.
        os.kill(second["pid"], signal.SIGTERM)
        until(lambda: supervised.is_back(2, 1))
        assert supervised.state(1, 2)["pid"] == first["pid"]
        # SIGHUP reaches all of them.
        supervised.file.write_text('[node]\nlog_level = "debug"\n')
        assert supervised.process is not None
        supervised.process.send_signal(signal.SIGHUP)
        until(lambda: supervised.log().count("settings: read again") >= 2)
        assert supervised.end(signal.SIGTERM) == 0


def test_a_worker_that_cannot_start_ends_the_supervisor(tmp_path: Path) -> None:
    with Supervised(tmp_path, 2) as supervised:
        with socket.create_server(("127.0.0.1", supervised.port + 2)):
            assert supervised.start() == ""
            assert supervised.process is not None
            assert supervised.process.wait(SECONDS_MAX) == 2
        message = f"error: worker 2: cannot listen on 127.0.0.1:{supervised.port + 2}"
        assert message in supervised.log()


def test_a_directory_has_one_kind_of_owner(tmp_path: Path) -> None:
    with Supervised(tmp_path, 1) as supervised:
        supervised.start()
        alone = supervised.run("serve", "--port", "0", "--data-dir", str(tmp_path / "data"))
        assert alone.returncode == 1
        assert "is in use by another process" in alone.stderr
        assert supervised.end(signal.SIGTERM) == 0
        alone = supervised.run("serve", "--port", "0", "--data-dir", str(tmp_path / "data"))
        assert alone.returncode == 2
        assert "has the data of 1 workers. Start it with --workers 1" in alone.stderr
