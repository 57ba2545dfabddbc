"""Real processes: a parent and its sites under kill -9, cuts, loss and full disks.

Each log of each site is byte-equal to a prefix of the parent's at every look, and to the whole of
it at the end. A third of the sites are parents themselves. The parent is Penstock or Apache Kafka.

With `PENSTOCK_PROOF=1` there are 20 processes and more faults; `PENSTOCK_EDGE_SEED` chooses them.
"""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.chaos_cluster.network import Network
from tests.edge_real.edge_machines import EdgeMachine, kafka_command, penstock_command
from tests.edge_real.stored_batches import last_offset, stored_batches

pytestmark = [pytest.mark.crash, pytest.mark.timeout(480)]

IS_PROOF = os.environ.get("PENSTOCK_PROOF") == "1"
SITES = 19 if IS_PROOF else 3
FAULT_SECONDS = 90.0 if IS_PROOF else 12.0
SEED = int(os.environ.get("PENSTOCK_EDGE_SEED", "1"))
TOPIC, PARTITIONS = "prices", 2
SITE_MEGABYTES, PARENT_MEGABYTES = 32, 128
START_SECONDS_MAX = 60.0
FLUSH_SECONDS_MAX = 60.0
CATCH_UP_SECONDS_MAX = 180.0
TICK_SECONDS = 0.1
LOSS_TURNS = 3
"""Loss: the cable is off in one of three turns."""


class Tree:
    """A parent, its sites, and the faults that are due."""

    def __init__(self, folder: Path, network: Network, draw: random.Random) -> None:
        self.folder = folder
        self.draw = draw
        self.parent = EdgeMachine("parent", folder, network, PARENT_MEGABYTES)
        self.sites = [
            EdgeMachine(f"site{number}", folder, network, SITE_MEGABYTES) for number in range(SITES)
        ]
        self.is_parent_filled = True
        self.faults: Counter[str] = Counter()
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._busy: set[str] = set()
        self._turn = 0
        middle = max(1, SITES // 3)
        for number, site in enumerate(self.sites):
            above = self.parent if number % 3 != 2 else self.sites[(number // 3) % middle * 3]
            settings = f"""
[[pipes]]
name = "hq"
parent = "{above.address}"
topics = ["{TOPIC}"]
poll_interval_ms = 200
on_gap = "stop"
"""
            penstock_command(site, settings, folder)

    @property
    def machines(self) -> list[EdgeMachine]:
        return [self.parent, *self.sites]

    # --- Faults ---

    def tick(self) -> None:
        """Do everything that is due, and turn the cables with loss.

        A broker that ended by itself is started, as a service manager does: a start on a full disk
        fails.
        """
        now = time.monotonic()
        for one in self.machines:
            if not one.is_running and one.name not in self._busy:
                one.start()
        for at, action in [one for one in self._due if one[0] <= now]:
            self._due.remove((at, action))
            action()
        self._turn += 1
        for one in self.machines:
            if one.is_flapping:
                if self._turn % LOSS_TURNS:
                    one.plug()
                else:
                    one.unplug()

    def harm(self, kinds: tuple[str, ...]) -> None:
        """Begin one more fault, at a machine without one."""
        calm = [one for one in self.machines if one.name not in self._busy]
        if not calm:
            return
        machine, kind = self.draw.choice(calm), self.draw.choice(kinds)
        if machine is self.parent and kind == "full disk" and not self.is_parent_filled:
            return
        self.faults[kind] += 1
        self._busy.add(machine.name)
        begin, end, seconds = {
            "kill": (machine.kill, machine.start, (0.2, 3.0)),
            "cut": (machine.unplug, machine.plug, (1.0, 8.0)),
            "loss": (lambda: self._flap(machine, is_on=True), lambda: self._flap(machine), (2, 6)),
            "full disk": (machine.fill, machine.free, (1.0, 5.0)),
        }[kind]
        begin()

        def over() -> None:
            end()
            self._busy.discard(machine.name)

        self._due.append((time.monotonic() + self.draw.uniform(*seconds), over))

    def _flap(self, machine: EdgeMachine, *, is_on: bool = False) -> None:
        machine.is_flapping = is_on
        machine.plug()

    def end_faults(self) -> None:
        """Let all faults pass."""
        while self._due or not all(one.is_running for one in self.machines):
            self.tick()
            time.sleep(TICK_SECONDS)

    # --- Promises ---

    def check_prefixes(self) -> None:
        """Each log is a prefix of the parent's, read after it."""
        for partition in range(PARTITIONS):
            name = f"{TOPIC}-{partition}"
            copies = [(one.name, stored_batches(one.data_dir, name)) for one in self.sites]
            whole = stored_batches(self.parent.data_dir, name)
            for site, copy in copies:
                assert whole.startswith(copy), f"{site}: {name} is not a prefix of the parent's"

    def behind(self) -> list[str]:
        """Return the sites whose log is not the whole log of the parent."""
        found = []
        for partition in range(PARTITIONS):
            name = f"{TOPIC}-{partition}"
            whole = stored_batches(self.parent.data_dir, name)
            found += [one.name for one in self.sites if stored_batches(one.data_dir, name) != whole]
        return found


@contextmanager
def planted(tmp_path: Path, kind: str) -> Iterator[Tree]:
    """All machines, running; removed at the end."""
    with Network() as network:
        tree = Tree(tmp_path, network, random.Random(SEED))
        try:
            if kind == "kafka":
                kafka_command(tree.parent, tmp_path)
                # Apache Kafka ends with its first full disk.
                tree.is_parent_filled = False
            else:
                penstock_command(tree.parent, "", tmp_path)
            for one in tree.machines:
                one.start()
            yield tree
        finally:
            for one in tree.machines:
                one.remove()


def create_topic(address: str) -> None:
    """Create the topic, as soon as the parent answers."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            wanted = NewTopic(TOPIC, PARTITIONS, 1)
            admin.create_topics([wanted], request_timeout=5)[TOPIC].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return  # the answer to an earlier request was late
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return


@pytest.mark.parametrize("kind", ["penstock", "kafka"])
def test_each_log_is_a_prefix_of_the_parents(tmp_path: Path, kind: str) -> None:
    acknowledged: Counter[int] = Counter()
    with planted(tmp_path, kind) as tree:
        create_topic(tree.parent.address)
        settings = {"bootstrap.servers": tree.parent.address, "enable.idempotence": True}
        producer = Producer({**settings, "linger.ms": 20, "log_level": 2})

        def done(error: object, message: object) -> None:
            assert error is None, error
            partition, offset = message.partition(), message.offset()  # type: ignore[attr-defined]
            acknowledged[partition] = max(acknowledged[partition], offset + 1)

        def write() -> None:
            for _ in range(20):
                value = tree.draw.randbytes(tree.draw.randrange(10, 400))
                partition = tree.draw.randrange(PARTITIONS)
                producer.produce(TOPIC, value, partition=partition, on_delivery=done)
            producer.poll(0)

        kinds = ("kill", "kill", "cut", "loss", "full disk")
        end = time.monotonic() + FAULT_SECONDS
        next_fault = time.monotonic() + 2.0
        while time.monotonic() < end:
            tree.tick()
            write()
            if time.monotonic() >= next_fault:
                tree.harm(kinds)
                tree.check_prefixes()
                next_fault = time.monotonic() + 30.0 / (10 + 10 * SITES)
            time.sleep(TICK_SECONDS)
        tree.end_faults()
        deadline = time.monotonic() + FLUSH_SECONDS_MAX
        while left := producer.flush(0.5):
            tree.tick()
            assert time.monotonic() < deadline, f"{left} records: {tree.parent.log_text()[-2_000:]}"
        tree.check_prefixes()
        deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
        while behind := tree.behind():
            tree.tick()
            logs = "\n".join(one.log_text()[-2_000:] for one in tree.sites if one.name in behind)
            assert time.monotonic() < deadline, f"{behind} are behind:\n{logs}"
            time.sleep(0.5)
        whole = [
            stored_batches(tree.parent.data_dir, f"{TOPIC}-{partition}")
            for partition in range(PARTITIONS)
        ]
        for partition, batches in enumerate(whole):
            assert last_offset(batches) + 1 >= acknowledged[partition]
        faults = ", ".join(f"{number} x {name}" for name, number in sorted(tree.faults.items()))
        print(
            f"\nedge of {SITES + 1} processes, parent {kind}, seed {SEED}: {faults}; "
            f"{sum(acknowledged.values())} records, {sum(map(len, whole))} bytes; "
            f"{SITES} logs byte-equal"
        )
    shutil.rmtree(tmp_path, ignore_errors=True)
