"""`penstock dlq` on a broker in memory: list, show, replay."""

import json
from collections.abc import Iterator

import pytest

from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.delivery.dead_letters import outgoing
from penstock.testing import Broker
from tests.cli.conftest import Outcome, Penstock


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def dlq(penstock: Penstock, broker: Broker) -> Penstock:
    def run(*words: str) -> Outcome:
        return penstock("dlq", *words, "--bootstrap-server", broker.bootstrap_server)

    return run


@pytest.fixture(scope="module", autouse=True)
def letters(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.create_topic("dlq.orders")
    for number in range(3):
        record = ConsumerRecord(
            "orders", 0, 40 + number, 5, b"key", b"value%d" % number, (("trace", b"7"),), 5
        )
        error = ValueError(f"no price\x1b[31m {number}")
        written = outgoing("dlq.orders", record, group="billing", error=error, now_ms=1_000)
        broker.produce(
            "dlq.orders",
            written.value,
            key=written.key,
            headers={name: value for name, value in written.headers if value is not None},
        )
    broker.produce("dlq.orders", "foreign")


def test_topics(dlq: Penstock) -> None:
    listed = dlq("list", "--json")
    (topic,) = json.loads(listed.output)
    assert topic["topic"] == "dlq.orders"
    assert topic["partitions"] == 1
    assert topic["waiting"] + topic["replayed"] >= 4
    assert dlq("list").output.splitlines()[0].split() == [
        *("topic", "partitions", "waiting", "replayed")
    ]
    assert dlq("list", "--prefix", "nothing.").output == "no topics with the prefix nothing.\n"


def test_records(dlq: Penstock) -> None:
    listed = dlq("list", "dlq.orders", "--all", "--limit", "2")
    lines = listed.output.splitlines()
    assert len(lines) == 3
    assert "orders-0@40" in lines[1]
    assert "billing" in lines[1]
    assert "ValueError" in lines[1]
    assert "\x1b" not in listed.output
    assert listed.errors == "the first 2 records; --limit shows more\n"
    documents = json.loads(dlq("list", "dlq.orders", "--all", "--json").output)
    assert documents[0]["origin"] == {
        "topic": "orders",
        "partition": 0,
        "offset": 40,
        "timestamp": "1970-01-01T00:00:00.005Z",
        "group": "billing",
        "attempts": 5,
        "error_type": "ValueError",
        "error_text": "no price\x1b[31m 0",
        "failed_at": "1970-01-01T00:00:01.000Z",
    }
    assert documents[3]["origin"] is None


def test_one_record(dlq: Penstock) -> None:
    shown = dlq("show", "dlq.orders", "0", "1").output.splitlines()
    assert shown[1:] == [
        "origin:    orders-0 at offset 41, 1970-01-01T00:00:00.005Z",
        "failed:    5 attempts by group billing, the last at 1970-01-01T00:00:01.000Z",
        "error:     ValueError: no price [31m 1",
        "key:       key",
        "header:    trace=7",
        "value:     value1",
    ]
    assert "origin:    unknown" in dlq("show", "dlq.orders", "0", "3").output
    document = json.loads(dlq("show", "dlq.orders", "0", "1", "--json").output)
    assert document["record"]["value"] == "value1"
    missing = dlq("show", "dlq.orders", "0", "99")
    assert missing.code == 1
    assert "error: dlq.orders-0 has no record at offset 99." in missing.errors
    assert "hint: `penstock dlq list dlq.orders --all` lists the records." in missing.errors


def test_replay(dlq: Penstock, broker: Broker) -> None:
    before = len(broker.records("orders"))
    asked = dlq("replay", "dlq.orders")
    assert asked.code == 2
    assert "cannot ask for confirmation without a terminal" in asked.errors
    assert len(broker.records("orders")) == before
    first = dlq("replay", "dlq.orders", "--limit", "1", "--yes")
    assert first.output == "1 record replayed\n  orders: 1\n"
    same = dlq("replay", "dlq.orders", "--to", "dlq.orders")
    assert (same.code, "is the dead-letter topic itself" in same.errors) == (2, True)
    rest = dlq("replay", "dlq.orders", "--json", "--to", "orders")
    assert json.loads(rest.output) == {"records": {"orders": 2}, "passed_over": 1}
    assert dlq("replay", "dlq.orders", "--yes").output == "0 records replayed\n"
    assert [one.value for one in broker.records("orders")[before:]] == [
        *("value0", "value1", "value2")
    ]
    assert dlq("list", "dlq.orders").output == "no such records in dlq.orders\n"


def test_an_unknown_topic(dlq: Penstock) -> None:
    for words in (
        ("list", "nowhere"),
        ("replay", "nowhere", "--yes"),
        ("replay", "dlq.orders", "--to", "nowhere"),
        ("show", "nowhere", "0", "0"),
    ):
        outcome = dlq(*words)
        assert outcome.code == 1
        assert "nowhere" in outcome.errors
        assert "hint:" in outcome.errors
