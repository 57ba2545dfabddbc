"""Groups of real clients, on Penstock and on Apache Kafka: join, grow, shrink, die, resume, seek.

Members are processes, so that one can be killed. The assertions are those that an application
relies on: every partition has one owner, every record is read, and committed records are not read
again by later members. Then Apache Kafka's own tool reads the offsets that Penstock wrote.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.client_drivers import DRIVERS, compiled_java, kafkajs_folder, node
from tests.interop.drivers.group_member import HEARTBEAT_MS, MEMBERS, SESSION_MS
from tests.oracle.kafka_broker import kafka_broker, make_class_data_archive
from tests.oracle.kafka_jars import java_command, run_kafka_tool
from tests.oracle.penstock_broker import ROOT, penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = pytest.mark.interop

PROGRAM = "tests.interop.drivers.group_member"
JAVA = {"java-classic": "classic", "java-consumer": "consumer"}
"""The group protocol of each."""
CLIENTS = [*MEMBERS, *JAVA, "kafkajs"]
PARTITIONS = 6
MORE_MEMBERS = {"java-classic": 2, "java-consumer": 2}
"""How many join the first one, if not four: a Java machine takes a second to start."""
SECONDS_MAX = 60.0
COMPLAINT_BYTES_MAX = 1 << 20
_numbers = itertools.count()
KAFKA = {
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
PENSTOCK = {
    "PENSTOCK_GROUPS__INITIAL_REBALANCE_DELAY_MS": "0",
    "PENSTOCK_GROUPS__OFFSETS_PARTITIONS": "5",
    "PENSTOCK_GROUPS__CONSUMER_SESSION_TIMEOUT_MS": str(SESSION_MS),
    "PENSTOCK_GROUPS__CONSUMER_HEARTBEAT_INTERVAL_MS": "500",
}


@pytest.fixture(scope="module", params=["kafka", "penstock"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp(request.param)
    made = (
        kafka_broker(folder, properties=KAFKA)
        if request.param == "kafka"
        else penstock_broker(folder, environment=PENSTOCK)
    )
    with made as running:
        yield running


def member_command(client: str, bootstrap: str, group: str, topic: str) -> list[str]:
    """The program that is a member by this client."""
    names, times = [bootstrap, group, topic], [str(SESSION_MS), str(HEARTBEAT_MS)]
    if client in JAVA:
        make_class_data_archive()
        return java_command(
            "GroupMember",
            [JAVA[client], *names, *times],
            appended_to_class_path=compiled_java("GroupMember"),
            log_level="error",
        )
    if client == "kafkajs":
        return [node(), "--no-warnings", str(DRIVERS / "kafkajs" / "member.js"), *names, *times]
    return [sys.executable, "-m", PROGRAM, client, *names]


def member_environment(client: str) -> dict[str, str]:
    """Where the program finds its client."""
    if client == "kafkajs":
        return {**os.environ, "NODE_PATH": str(kafkajs_folder() / "node_modules")}
    return dict(os.environ)


class Member:
    """One member as a process."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str) -> None:
        self.assigned: list[int] = []
        self.values: list[str] = []
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (`_end` closes it)
        self._process = subprocess.Popen(
            member_command(client, bootstrap, group, topic),
            cwd=ROOT,
            env=member_environment(client),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # It was killed in the middle of a word.
            said = json.loads(line)
            if "assigned" in said:
                self.assigned = said["assigned"]
            elif "value" in said:
                self.values.append(said["value"])

    def state(self) -> tuple[object, ...]:
        """For who wonders why nothing happens: has it ended, what has it, why."""
        said = os.pread(self._complaints.fileno(), COMPLAINT_BYTES_MAX, 0)[-2000:]
        return self._process.poll(), self.assigned, len(self.values), self.values[-3:], said

    def rewind(self) -> None:
        """Read all partitions from the beginning again."""
        assert self._process.stdin is not None
        self._process.stdin.write("rewind\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """Leave the group and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(SECONDS_MAX) == 0
        self._end()

    def kill(self) -> None:
        """End at once; the group is not told."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._complaints.close()


def until(condition: Callable[[], bool], members: list[Member]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, [member.state() for member in members]
        time.sleep(0.05)


def is_shared(members: list[Member]) -> bool:
    """Whether every partition has one owner, and everybody owns something."""
    owned = sorted(partition for member in members for partition in member.assigned)
    return owned == list(range(PARTITIONS)) and all(member.assigned for member in members)


class Stage:
    """A topic, and a group that reads it."""

    def __init__(self, client: str, broker: RunningBroker) -> None:
        self.client = client
        self.bootstrap = broker.bootstrap
        self.topic = f"groups-{next(_numbers)}"
        self.group = f"{client}-{self.topic}"
        self.members: list[Member] = []
        self.sent = 0
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(SECONDS_MAX)
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})

    def start(self, count: int = 1) -> None:
        self.members += [
            Member(self.client, self.bootstrap, self.group, self.topic) for _ in range(count)
        ]

    def produce(self, count: int = 60) -> list[str]:
        values = [str(number) for number in range(self.sent, self.sent + count)]
        for number, value in enumerate(values):
            self._producer.produce(self.topic, value, partition=number % PARTITIONS)
        assert self._producer.flush(SECONDS_MAX) == 0
        self.sent += count
        return values

    def until_shared(self) -> None:
        until(lambda: is_shared(self.members), self.members)

    def until_seen(self, values: list[str], seen: list[Member]) -> None:
        wanted = set(values)
        until(lambda: wanted <= {value for member in seen for value in member.values}, seen)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_grows_loses_a_member_shrinks_resumes_and_rewinds(
    broker: RunningBroker, client: str
) -> None:
    stage = Stage(client, broker)
    ever: list[Member] = []
    try:
        stage.start()
        stage.until_shared()
        first = stage.produce()
        stage.start(MORE_MEMBERS.get(client, 4))
        ever = list(stage.members)
        stage.until_shared()
        second = stage.produce()
        stage.until_seen(first + second, ever)
        stage.members.pop(2).kill()
        third = stage.produce()
        stage.until_shared()
        stage.until_seen(third, ever)
        while len(stage.members) > 1:
            stage.members.pop(0).stop()
        stage.until_shared()
        stage.until_seen(stage.produce(), ever)
        stage.members.pop().stop()
        last = stage.produce(12)
        stage.start()
        stage.until_seen(last, stage.members)
        assert sorted(stage.members[0].values) == sorted(last), "what was committed came again"
        stage.members[0].rewind()
        stage.until_seen(first + second + third + last, stage.members)
    finally:
        for member in stage.members:
            member.kill()


def test_kafkas_tool_reads_the_offsets_that_penstock_wrote(tmp_path: Path) -> None:
    with penstock_broker(tmp_path, environment=PENSTOCK) as broker:
        for client in ("confluent-eager", "confluent-consumer"):
            stage = Stage(client, broker)
            stage.start()
            stage.until_seen(stage.produce(), stage.members)
            stage.members.pop().stop()
        data_dir = broker.data_dir
    printed = ""
    for partition in range(5):
        files = sorted((data_dir / f"__consumer_offsets-{partition}").glob("*.log"))
        printed += run_kafka_tool(
            "org.apache.kafka.tools.DumpLogSegments",
            ["--offsets-decoder", "--files", ",".join(map(str, files))],
        )
    assert "isvalid: true" in printed
    assert "isvalid: false" not in printed
    keys = re.findall(r"key: (\S+) payload: (\S+)", printed)
    assert len(keys) == printed.count("| offset: ")
    types = [json.loads(key)["type"] for key, _ in keys]
    assert set(types) == {"1", "2", "3", "5", "6", "7", "8"}
    assert types.count("1") >= PARTITIONS * 2
