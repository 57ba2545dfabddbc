"""`penstock group` and `penstock txn` on real brokers, beside Kafka's own tools on the same ones.

Groups and transactions are created by a real client. Our commands show the same of them as Kafka's
tools; a plan that one writes, the other reads.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.client.conftest import Commands
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.kafka_jars import run_kafka_tool
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTION_TOOL = "org.apache.kafka.tools.TransactionsCommand"
JOIN_SECONDS_MAX = 60
LONG = "twenty-four-characters-0"
LONGER = "twenty-five-characters-00"


@pytest.fixture(scope="module", params=["kafka", "penstock"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp(request.param)
    started = kafka_broker(folder) if request.param == "kafka" else penstock_broker(folder)
    with started as running:
        yield running


@pytest.fixture(scope="module")
def commands(broker: RunningBroker) -> Commands:
    made = Commands(broker.bootstrap)
    made.lines("topic", "create", "orders", "--partitions", "3")
    for topic in (LONG, LONGER):
        made.lines("topic", "create", topic, "--partitions", "1")
    for partition in range(3):
        values = "".join(f"{number}\n" for number in range(10 * (partition + 1)))
        made.lines("produce", "orders", "--partition", str(partition), stdin=values)
    return made


def kafka_tool(broker: RunningBroker, tool: str, *words: str) -> list[list[str]]:
    """The words of every line that Kafka's tool prints, without empty lines."""
    printed = run_kafka_tool(tool, ["--bootstrap-server", broker.bootstrap, *words])
    return [line.split() for line in printed.splitlines() if line.strip()]


@contextmanager
def members(broker: RunningBroker, group: str, protocol: str, count: int) -> Iterator[None]:
    """So many members who have all partitions between them and committed 5 in each."""
    consumers = [
        Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": f"{group}-{number}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        for number in range(count)
    ]
    try:
        for consumer in consumers:
            consumer.subscribe(["orders"])
        deadline = time.monotonic() + JOIN_SECONDS_MAX
        while not _is_shared(consumers):
            assert time.monotonic() < deadline, "the members did not join in time"
            for consumer in consumers:
                consumer.poll(0.05)
        for consumer in consumers:
            at = [TopicPartition(part.topic, part.partition, 5) for part in consumer.assignment()]
            consumer.commit(offsets=at, asynchronous=False)
        yield
    finally:
        for consumer in consumers:
            consumer.close()


def _is_shared(consumers: list[Consumer]) -> bool:
    counts = [len(consumer.assignment()) for consumer in consumers]
    return sum(counts) == 3 and min(counts) > 0


def our_rows(document: dict[str, Any]) -> list[list[str]]:
    """Our offsets in the order of the columns of Kafka's tool."""
    names = ("topic", "partition", "committed", "end_offset", "lag", "member", "host", "client")
    return sorted(
        ["-" if row[name] is None else str(row[name]) for name in names]
        for row in document["offsets"]
    )


def kafka_rows(broker: RunningBroker, group: str) -> list[list[str]]:
    lines = kafka_tool(broker, GROUP_TOOL, "--describe", "--group", group)
    return sorted(line[1:] for line in lines if line[0] == group)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_describe_shows_what_kafkas_tool_shows(
    broker: RunningBroker, commands: Commands, protocol: str
) -> None:
    group = f"described-{protocol}"
    with members(broker, group, protocol, 2):
        (document,) = commands.document("group", "describe", group)
        assert document["type"] == protocol
        assert document["state"] == "Stable"
        assert document["lag"] == (10 - 5) + (20 - 5) + (30 - 5)
        assert our_rows(document) == kafka_rows(broker, group)
        lines = kafka_tool(broker, GROUP_TOOL, "--describe", "--group", group, "--state")
        place = document["coordinator"]
        address = f"{place['host']}:{place['port']}"
        shown = [group, address, f"({place['broker']})", document["assignor"], "Stable", "2"]
        assert shown in lines
        for words in (
            ("delete", "--yes", group),
            ("reset-offsets", group, "--all-topics", "--to-latest"),
        ):
            refused = commands.run("group", *words)
            assert refused.returncode == 1
            assert "members" in refused.stderr
    (document,) = commands.document("group", "describe", group)
    assert (document["state"], document["member_count"]) == ("Empty", 0)
    assert our_rows(document) == kafka_rows(broker, group)
    assert commands.document("group", "lag", group)["lag"] == 45
    assert commands.lines("group", "delete", "--yes", group) == [f"{group} deleted"]
    assert commands.run("group", "describe", group).returncode == 1


def test_list_shows_what_kafkas_tool_shows(broker: RunningBroker, commands: Commands) -> None:
    where = ("--topic", "orders", "--to-latest", "--execute")
    commands.lines("group", "reset-offsets", "listed", *where)
    with members(broker, "listed-new", "consumer", 1):
        documents = commands.document("group", "list")
        ours = sorted([one["group"], one["type"].lower(), one["state"]] for one in documents)
        lines = kafka_tool(broker, GROUP_TOOL, "--list", "--state", "--type")
        assert ours == sorted([name, kind.lower(), state] for name, kind, state in lines[1:])
        assert ["listed", "classic", "Empty"] in ours
        assert ["listed-new", "consumer", "Stable"] in ours
    commands.lines("group", "delete", "--yes", "listed")


def test_plans_are_exchanged_with_kafkas_tool(
    broker: RunningBroker, commands: Commands, tmp_path: Path
) -> None:
    topics = ("--topic", "orders", "--topic", LONG, "--topic", LONGER)
    words = (*topics, "--to-latest", "--export")
    ours = commands.lines("group", "reset-offsets", "moved", *words)
    theirs = kafka_tool(
        broker, GROUP_TOOL, "--reset-offsets", "--group", "moved", *words, "--dry-run"
    )
    assert sorted(ours) == sorted(line for (line,) in theirs)
    assert f'"{LONGER}",0,0' in ours
    assert f"{LONG},0,0" in ours
    plan = tmp_path / "plan.csv"
    plan.write_text("\n".join(ours) + "\n")
    file_words = ("--reset-offsets", "--group", "moved", "--from-file", str(plan), "--execute")
    kafka_tool(broker, GROUP_TOOL, *file_words)
    assert committed(commands, "moved") == [10, 20, 30, 0, 0]
    commands.lines("group", "reset-offsets", "copied", "--from-file", str(plan), "--execute")
    assert committed(commands, "copied") == [10, 20, 30, 0, 0]
    for group in ("moved", "copied"):
        commands.lines("group", "delete", "--yes", group)


def committed(commands: Commands, group: str) -> list[int]:
    (found,) = commands.document("group", "lag", group)["groups"]
    return [row["committed"] for row in found["offsets"]]


RESETS: list[tuple[tuple[str, ...], list[int]]] = [
    (("--to-latest",), [10, 20, 30]),
    (("--shift-by", "-5"), [5, 15, 25]),
    (("--to-current",), [5, 15, 25]),
    (("--to-earliest",), [0, 0, 0]),
    (("--to-timestamp", "2100-01-01T00:00:00Z"), [10, 20, 30]),
    (("--to-timestamp", "0"), [0, 0, 0]),
    (("--to-offset", "15"), [10, 15, 15]),
]
"""One after the other, and what is committed then."""


def test_a_reset_is_seen_by_a_consumer(broker: RunningBroker, commands: Commands) -> None:
    reset = ("group", "reset-offsets", "reset", "--topic", "orders")
    commands.lines(*reset, "--to-offset", "8", "--execute")
    commands.lines(*reset, "--to-latest")
    assert committed(commands, "reset") == [8, 8, 8]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reset"})
    places = [TopicPartition("orders", number) for number in range(3)]
    try:
        for words, offsets in RESETS:
            commands.lines(*reset, *words, "--execute")
            assert [part.offset for part in consumer.committed(places, 30)] == offsets
    finally:
        consumer.close()


def test_a_transaction_is_listed_described_and_aborted(
    broker: RunningBroker, commands: Commands
) -> None:
    commands.lines("topic", "create", "paid", "--partitions", "1")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "pay", "linger.ms": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("paid", b"1", partition=0)
    producer.flush(30)
    (listed,) = commands.document("txn", "list", "--state", "ongoing")
    assert (listed["transactional_id"], listed["state"]) == ("pay", "Ongoing")
    (described,) = commands.document("txn", "describe", "pay")
    assert described["partitions"] == [{"topic": "paid", "partition": 0}]
    (opened,) = commands.document("txn", "producers", "paid", "--open")
    assert (opened["producer_id"], opened["start_offset"]) == (listed["producer_id"], 0)
    _, theirs = kafka_tool(broker, TRANSACTION_TOOL, "describe", "--transactional-id", "pay")
    shown = [described["coordinator"], "pay", described["producer_id"], described["producer_epoch"]]
    shown += ["Ongoing", described["timeout_ms"], described["started_ms"]]
    assert theirs[:7] == [str(one) for one in shown]
    assert commands.lines("txn", "hanging", "paid", "--silent-for", "0") == ["no transaction hangs"]
    place = ("--topic", "paid", "--partition", "0", "--start-offset", "0")
    refused = commands.run("txn", "abort", *place, "--yes")
    assert refused.returncode == 1
    assert "belongs to pay" in refused.stderr
    assert read_committed(broker, seconds=3) == []
    commands.lines("txn", "abort", *place, "--force", "--yes")
    assert commands.lines("txn", "producers", "paid", "--open") == ["no open transactions"]
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce("paid", b"2", partition=0)
    producer.commit_transaction(30)
    assert read_committed(broker, seconds=30, count=1) == [b"2"]


def read_committed(broker: RunningBroker, *, seconds: float, count: int = 1) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    found: list[bytes] = []
    deadline = time.monotonic() + seconds
    try:
        consumer.assign([TopicPartition("paid", 0, 0)])
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value() or b"")
    finally:
        consumer.close()
    return found
