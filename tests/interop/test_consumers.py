"""`@penstock.consumer` on real brokers: failing and slow handlers, kill -9, rebalances, SIGTERM.

Each consumer is a process of its own, started by `penstock consumers run`.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.broker.handlers import consumer_group_heartbeat
from penstock.client.groups.groups import Groups
from penstock.client.opening import open_cluster
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.options import ClientOptions
from penstock.consumers.application import Consumer
from penstock.consumers.errors import ConsumerError
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker, running_consumer, topic_records
from penstock.testing.topic_names import fresh_topic_name
from tests.interop.conftest import BrokerNamed
from tests.oracle.both_brokers import NAMES
from tests.oracle.kafka_broker import kafka_broker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 3
SECONDS_MAX = 90.0
SOON_DEAD = json.dumps({"group.protocol": "classic", "session.timeout.ms": "6000"})
"""A killed member is removed after 6 s; the protocol `consumer` waits for 45 s at least."""


@pytest.fixture(params=NAMES)
def bootstrap(request: pytest.FixtureRequest, broker_named: BrokerNamed) -> str:
    return broker_named(request.param).bootstrap


class Scene:
    """A topic, and the processes that consume it."""

    def __init__(self, bootstrap: str, folder: Path, mode: str = "fanout") -> None:
        self.bootstrap = bootstrap
        self.topic = fresh_topic_name("orders")
        self.mode = mode
        self.file = folder / "seen"
        self.file.touch()
        self.errors = folder / "errors"
        topic_records.create_topic(bootstrap, self.topic, PARTITIONS, {})

    def produce(self, values: list[str]) -> None:
        for number, value in enumerate(values):
            topic_records.produce(
                self.bootstrap, self.topic, [value], f"key{number % 20}", {}, None
            )

    def start(self, pause_seconds: float = 0.0, **others: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "TOPIC": self.topic,
            "GROUP": f"group-{self.topic}",
            "MODE": self.mode,
            "SEEN_FILE": str(self.file),
            "PAUSE_SECONDS": str(pause_seconds),
            **others,
        }
        with self.errors.open("ab") as errors:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "penstock", "consumers", "run", "consumer_app"),
                    *("--directory", str(ROOT / "tests" / "interop" / "drivers")),
                    *("--bootstrap-server", self.bootstrap),
                ],
                env=environment,
                stderr=errors,
            )

    def seen(self) -> list[str]:
        return [line.split()[2] for line in self.file.read_text().splitlines()]

    def dead_letters(self) -> Counter[str | None]:
        with contextlib.suppress(Exception):
            found = topic_records.arrived_records(
                self.bootstrap, f"dlq.{self.topic}", timeout_seconds=5
            )
            return Counter(record.value for record in found)
        return Counter()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, (len(self.seen()), self.errors.read_text()[-3000:])
            time.sleep(0.05)

    def committed(self) -> Mapping[str, int]:
        with open_cluster(ClientOptions(parse_addresses(self.bootstrap))) as cluster:
            found = Groups(cluster).committed(f"group-{self.topic}")
            return {str(at): one.offset for at, one in found.items()}

    def ends(self) -> dict[str, int]:
        found = topic_records.arrived_records(self.bootstrap, self.topic)
        ends: dict[str, int] = {}
        for record in found:
            ends[f"{self.topic}-{record.partition}"] = record.offset + 1
        return ends


@contextlib.contextmanager
def stopped(*processes: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def end(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=60)


def values(count: int, *, poison_every: int) -> list[str]:
    return [
        f"{'poison' if number % poison_every == 0 else 'ok'}{number}" for number in range(count)
    ]


def good(all_values: list[str]) -> Counter[str]:
    return Counter(one for one in all_values if one.startswith("ok"))


def bad(all_values: list[str]) -> set[str]:
    return {one for one in all_values if one.startswith("poison")}


def test_every_record_is_handled_or_a_dead_letter_and_a_stop_commits(
    bootstrap: str, tmp_path: Path
) -> None:
    scene = Scene(bootstrap, tmp_path)
    sent = values(120, poison_every=30)
    scene.produce(sent)
    process = scene.start()
    with stopped(process):
        scene.until(lambda: Counter(scene.seen()) == good(sent))
        scene.until(lambda: set(scene.dead_letters()) == bad(sent))
        assert end(process) == 0
    assert Counter(scene.seen()) == good(sent)
    assert scene.dead_letters() == Counter(bad(sent))
    committed = {at: offset for at, offset in scene.committed().items() if scene.topic + "-" in at}
    assert {at: committed[at] for at in scene.ends()} == scene.ends()


def test_nothing_is_lost_by_kill_9(bootstrap: str, tmp_path: Path) -> None:
    scene = Scene(bootstrap, tmp_path)
    sent = values(150, poison_every=25)
    scene.produce(sent)
    for kill_at in (20, 60):
        process = scene.start(pause_seconds=0.02, SETTINGS=SOON_DEAD)
        with stopped(process):
            scene.until(lambda limit=kill_at: len(set(scene.seen())) >= limit)  # type: ignore[misc]
            process.kill()
    process = scene.start(SETTINGS=SOON_DEAD)
    with stopped(process):
        scene.until(lambda: set(scene.seen()) == set(good(sent)))
        scene.until(lambda: set(scene.dead_letters()) == bad(sent))
        assert end(process) == 0


def test_members_that_come_and_go_in_order_repeat_nothing(bootstrap: str, tmp_path: Path) -> None:
    scene = Scene(bootstrap, tmp_path)
    sent = [f"ok{number}" for number in range(240)]
    scene.produce(sent)
    first = scene.start(pause_seconds=0.05)
    with stopped(first):
        scene.until(lambda: len(scene.seen()) > 10)
        second = scene.start(pause_seconds=0.05)
        with stopped(second):
            scene.until(lambda: "revoked" in scene.errors.read_text())
            assert end(first) == 0
            scene.until(lambda: set(scene.seen()) == set(sent))
            assert end(second) == 0
    assert Counter(scene.seen()) == Counter(sent)


def test_a_queue_gives_each_record_to_one_member(bootstrap: str, tmp_path: Path) -> None:
    scene = Scene(bootstrap, tmp_path, mode="queue")
    set_group_offset_to_earliest(scene)
    sent = values(100, poison_every=20)
    scene.produce(sent)
    processes = [scene.start(pause_seconds=0.01) for _ in range(2)]
    with stopped(*processes):
        scene.until(lambda: set(scene.seen()) == set(good(sent)))
        scene.until(lambda: set(scene.dead_letters()) == bad(sent))
        assert [end(process) for process in processes] == [0, 0]
    assert Counter(scene.seen()) == good(sent)
    assert scene.dead_letters() == Counter(bad(sent))


def set_group_offset_to_earliest(scene: Scene) -> None:
    with open_cluster(ClientOptions(parse_addresses(scene.bootstrap))) as cluster:
        cluster.configure_group(f"group-{scene.topic}", {"share.auto.offset.reset": "earliest"})


def test_a_missing_topic_and_a_missing_broker_are_clear_errors(
    bootstrap: str, tmp_path: Path
) -> None:
    scene = Scene(bootstrap, tmp_path)
    process = scene.start(TOPIC="nowhere")
    with stopped(process):
        assert process.wait(timeout=60) == 1
    text = scene.errors.read_text()
    assert "error: topic 'nowhere' not found." in text
    assert "hint: Create it with `penstock topic create nowhere`." in text


@penstock.consumer(topic="orders", group="billing")
def note(record: penstock.ConsumerRecord) -> None:
    NOTED.append(record.text())


NOTED: list[str] = []


@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_refused_protocol_is_replaced_unless_it_was_chosen(
    monkeypatch: pytest.MonkeyPatch, is_chosen: bool
) -> None:
    def refuse(*_: object) -> object:
        return consumer_group_heartbeat._refused(ErrorCode.UNSUPPORTED_VERSION)

    monkeypatch.setattr(consumer_group_heartbeat, "_ask", refuse)
    NOTED.clear()
    chosen = {"group.protocol": "consumer"} if is_chosen else {}
    consumer = Consumer(note.handler, replace(note.options, settings=chosen))
    with Broker() as broker:
        broker.create_topic("orders")
        broker.produce("orders", "a", "b")
        if is_chosen:
            with pytest.raises(ConsumerError, match="cannot continue"):
                asyncio.run(consumer.run(bootstrap_server=broker.bootstrap_server))
            return
        with running_consumer(consumer, broker) as run:
            run.until_done(SECONDS_MAX)
    assert NOTED == ["a", "b"]


def test_a_broker_with_the_classic_protocol_only(tmp_path: Path) -> None:
    properties = {"group.coordinator.rebalance.protocols": "classic"}
    broker = kafka_broker(tmp_path / "kafka", properties=properties).start()
    try:
        scene = Scene(broker.bootstrap, tmp_path)
        scene.produce(["ok1", "ok2"])
        process = scene.start()
        with stopped(process):
            scene.until(lambda: sorted(scene.seen()) == ["ok1", "ok2"])
            assert end(process) == 0
    finally:
        broker.stop()
