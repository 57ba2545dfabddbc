"""The whole script on one broker: every command in its turn, with the clients that some need.

Guarantees: a `held` client is connected during its steps and closed after them. After each command
there is a short pause: Apache Kafka answers before its broker applies a change.
"""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests.interop.tool_runner import Output, ToolRunner
from tests.interop.tool_script import FILES, SCRIPT, Step
from tests.oracle.running_broker import RunningBroker

REST_SECONDS = 0.3
CLIENT_SECONDS_MAX = 30.0
HELD_TOPIC = "with_two.words"


@contextmanager
def member(bootstrap: str) -> Iterator[None]:
    """A member of the group `held` that has read and committed everything of `orders`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "held",
            "group.id": "held",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    read, deadline = 0, time.monotonic() + CLIENT_SECONDS_MAX
    while read < 5:
        assert time.monotonic() < deadline, read
        message = consumer.poll(0.1)
        read += message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    yield
    consumer.close()


@contextmanager
def transaction(bootstrap: str) -> Iterator[None]:
    """An open transaction of the id `held` with one record in it."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": "held", "transactional.id": "held"}
    )
    producer.init_transactions(CLIENT_SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(HELD_TOPIC, b"open")
    assert producer.flush(CLIENT_SECONDS_MAX) == 0
    yield


@contextmanager
def nobody(_bootstrap: str) -> Iterator[None]:
    """No other client."""
    yield


HOLDERS = {
    "": nobody,
    "member": member,
    "transaction": transaction,
    "another": transaction,
}


def run_script(broker: RunningBroker, folder: Path) -> list[tuple[Step, Output]]:
    """Every step of the script with what it gave."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    outputs = []
    with ToolRunner(broker.bootstrap, folder) as runner:
        if broker.name == "kafka":
            _without_eligible_leaders(runner)
        for held, steps in groupby(SCRIPT, lambda step: step.held):
            with HOLDERS[held](broker.bootstrap):
                for step in steps:
                    outputs.append((step, _run(runner, step, folder)))
                    time.sleep(REST_SECONDS)
    return outputs


def _without_eligible_leaders(runner: ToolRunner) -> None:
    """Take back what Kafka does for clusters with replicas, and shows with every topic."""
    feature, setting = "eligible.leader.replicas.version=0", "min.insync.replicas"
    of_all = ("--entity-type", "brokers", "--entity-default")
    for name, *words in (
        ("kafka-features", "downgrade", "--feature", feature),
        ("kafka-configs", "--alter", *of_all, "--delete-config", setting),
    ):
        done = runner.run(name, "--bootstrap-server", runner.bootstrap, *words)
        assert done.code == 0, done


def _run(runner: ToolRunner, step: Step, folder: Path) -> Output:
    name, *arguments = shlex.split(step.line.replace("{folder}", str(folder)))
    # Tools with subcommands take the address after the subcommand or before: before is safe.
    address = ("--bootstrap-server", runner.bootstrap)
    takes_first = name in {"kafka-transactions", "kafka-metadata-quorum", "kafka-features"}
    words = (*address, *arguments) if takes_first else (*arguments, *address)
    return runner.run(name, *words, text=step.text)
