"""Copies by the guide on migrating are the same afterwards: nulls, in its program also times."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.docs.test_guides import ADDRESS, DOCS, run
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = pytest.mark.interop

GUIDE = (DOCS / "guides" / "migrating.md").read_text()
LONG_AGO_MS = 1_600_000_000_000
RECORDS: list[tuple[str | None, str | None, list[tuple[str, str | bytes | None]]]] = [
    ("alice", "1", [("trace", b"a")]),
    (None, "without a key", []),
    ("alice", None, [("trace", None)]),
    ("bob", "a\ttab", []),
    ("", "", []),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with penstock_broker(tmp_path / "broker") as running:
        yield running


def make_original(broker: RunningBroker, folder: Path, copy: str) -> None:
    """The topic `orders` with one record of each kind, and an empty topic for its copy."""
    for topic in ("orders", copy):
        run(f"penstock topic create {topic} --partitions 1", broker.bootstrap, folder)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, (key, value, headers) in enumerate(RECORDS):
        producer.produce("orders", value, key, timestamp=LONG_AGO_MS + number, headers=headers)
    assert producer.flush(30) == 0


def documents(topic: str, broker: RunningBroker, folder: Path) -> list[dict[str, object]]:
    printed = run(f"penstock consume {topic} --json", broker.bootstrap, folder)
    found = [json.loads(line) for line in printed.splitlines()]
    return [{name: one[name] for name in one if name != "topic"} for one in found]


def test_the_pipe_keeps_null_keys_and_tombstones(broker: RunningBroker, tmp_path: Path) -> None:
    (pipe,) = re.findall(r"^\$ (penstock consume .* \| penstock produce .*)$", GUIDE, re.MULTILINE)
    make_original(broker, tmp_path, "orders-copy")
    assert run(pipe, broker.bootstrap, tmp_path) == f"{len(RECORDS)} records sent to orders-copy\n"
    copied = [(one["key"], one["value"]) for one in documents("orders-copy", broker, tmp_path)]
    assert copied == [(key, value) for key, value, _ in RECORDS]


def test_the_program_keeps_everything(broker: RunningBroker, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    make_original(broker, tmp_path, "orders-copy-2")
    exec(program.replace(ADDRESS, broker.bootstrap), {})
    original = documents("orders", broker, tmp_path)
    assert len(original) == len(RECORDS)
    assert documents("orders-copy-2", broker, tmp_path) == original
