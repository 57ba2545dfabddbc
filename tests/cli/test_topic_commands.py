"""`penstock topic`, `produce` and `consume` over a cluster in memory."""

import json
from pathlib import Path

import pytest

from penstock.cli import brokers, exits
from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address
from penstock.core.errors import BrokerAnswerError, UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import create_topics, incremental_alter_configs, produce
from penstock.protocol.messages.metadata import MetadataResponseTopic
from penstock.records.batch import read_header
from penstock.records.builder import read_records
from tests.cli.conftest import Penstock
from tests.client.fake_broker import FakeCluster, FakeConnection


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster()

    def connect(address: Address, *, timeout_seconds: float, **_others: object) -> FakeConnection:
        assert timeout_seconds > 0
        return cluster.connect(address)

    monkeypatch.setattr(brokers, "connect", connect)
    return cluster


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(b"a:1\nb:2\na:3\n")
    return path


def test_create_list_describe_delete(penstock: Penstock) -> None:
    created = penstock("topic", "create", "orders", "--partitions", "3")
    assert created == (0, "orders created, 3 partitions\n", "")
    listed = penstock("topic", "list")
    assert listed.output.splitlines()[1].split() == ["orders", "3", "1"]
    described = penstock("topic", "describe", "orders").output
    assert "retention.ms" in described
    assert "cleanup.policy" not in described
    assert penstock("topic", "delete", "--yes", "orders").output == "orders deleted\n"
    assert "no topics" in penstock("topic", "list").output


def test_a_new_topic_that_brokers_learn_of_late_is_waited_for(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, refusals = Cluster.topic, iter(range(2))

    def late(self: Cluster, name: str) -> MetadataResponseTopic:
        if next(refusals, None) is not None:
            raise UnknownTopicOrPartitionError(f"topic {name!r} not found.")
        return find(self, name)

    monkeypatch.setattr(Cluster, "topic", late)
    assert penstock("topic", "create", "orders").output == "orders created, 1 partition\n"


def test_json_of_each(penstock: Penstock) -> None:
    created = json.loads(penstock("topic", "create", "orders", "--json").output)
    assert created == {"name": "orders", "created": True, "partitions": 1}
    assert json.loads(penstock("topic", "list", "--json").output) == [
        {"name": "orders", "partitions": 1, "replication_factor": 1, "internal": False}
    ]
    (described,) = json.loads(penstock("topic", "describe", "orders", "--json").output)
    assert described["topic_id"] == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert described["partitions"][0]["end_offset"] == 0
    assert {"name": "cleanup.policy", "value": "delete", "source": "default"} in described[
        "configs"
    ]
    deleted = json.loads(penstock("topic", "delete", "--yes", "orders", "--json").output)
    assert deleted == [{"name": "orders", "deleted": True}]


def test_a_topic_that_exists(penstock: Penstock, fake: FakeCluster) -> None:
    fake.add_topic("orders", 2)
    outcome = penstock("topic", "create", "orders")
    assert outcome.code == 1
    assert "TOPIC_ALREADY_EXISTS" in outcome.errors
    assert "Add --if-not-exists to accept the topic as it is" in outcome.errors
    again = penstock("topic", "create", "orders", "--if-not-exists")
    assert again == (0, "orders exists already, 2 partitions\n", "")


def test_too_many_copies_are_told_with_what_to_do() -> None:
    told = exits.explanation(BrokerAnswerError(38, "INVALID_REPLICATION_FACTOR", "only 1 broker"))
    assert "only 1 broker" in told
    assert "Leave --replication-factor out" in told


def test_settings_of_a_new_topic(penstock: Penstock, fake: FakeCluster) -> None:
    assert penstock("topic", "create", "a", "--config", "retention.ms=5").code == 0
    request = next(r for r in fake.requests if isinstance(r, create_topics.CreateTopicsRequest))
    (config,) = request.topics[0].configs
    assert (config.name, config.value) == ("retention.ms", "5")
    wrong = penstock("topic", "create", "b", "--config", "retention.ms")
    assert wrong.code == 2
    assert "NAME=VALUE" in wrong.errors


def test_more_partitions(penstock: Penstock, fake: FakeCluster) -> None:
    fake.add_topic("orders", 2)
    grown = penstock("topic", "alter", "orders", "--partitions", "3")
    assert grown == (0, "orders has 3 partitions\n", "")
    assert penstock("topic", "list").output.splitlines()[1].split() == ["orders", "3", "1"]
    again = penstock("topic", "alter", "orders", "--partitions", "3")
    assert again.code == 1
    assert "INVALID_PARTITIONS" in again.errors
    grown = penstock("topic", "alter", "orders", "--partitions", "4", "--json")
    assert json.loads(grown.output) == {"name": "orders", "partitions": 4}
    missing = penstock("topic", "alter", "nobody", "--partitions", "3")
    assert missing.code == 1
    assert "nobody" in missing.errors
    assert penstock("topic", "alter", "orders").code == 2


def test_settings_of_a_topic_change(penstock: Penstock, fake: FakeCluster) -> None:
    fake.add_topic("orders")
    words = ("retention.ms=5", "cleanup.policy=", "--delete", "segment.ms")
    changed = penstock("topic", "configure", "orders", *words)
    assert changed == (0, "orders: 3 settings changed\n", "")
    kind = incremental_alter_configs.IncrementalAlterConfigsRequest
    request = next(r for r in fake.requests if isinstance(r, kind))
    assert [(c.name, c.config_operation, c.value) for c in request.resources[0].configs] == [
        ("retention.ms", 0, "5"),
        ("cleanup.policy", 0, ""),
        ("segment.ms", 1, None),
    ]
    told = penstock("topic", "configure", "orders", "--delete", "a", "--json")
    assert json.loads(told.output) == {"name": "orders", "settings": {"a": None}}


def test_settings_that_cannot_be_changed(penstock: Penstock, fake: FakeCluster) -> None:
    fake.add_topic("orders")
    for words, text in (
        ((), "Nothing to change"),
        (("retention.ms",), "NAME=VALUE"),
        (("a=1", "--delete", "a"), "both set and deleted"),
    ):
        wrong = penstock("topic", "configure", "orders", *words)
        assert wrong.code == 2
        assert text in wrong.errors
    assert penstock("topic", "configure", "nobody", "a=1").code == 1
    kind = incremental_alter_configs.IncrementalAlterConfigsRequest
    fake.fail_next(kind, ErrorCode.INVALID_CONFIG)
    refused = penstock("topic", "configure", "orders", "a=1")
    assert refused.code == 1
    assert "INVALID_CONFIG" in refused.errors


def test_internal_topics_are_shown_on_request(penstock: Penstock, fake: FakeCluster) -> None:
    fake.add_topic("__consumer_offsets")
    assert "no topics" in penstock("topic", "list").output
    assert "__consumer_offsets" in penstock("topic", "list", "--internal").output


def test_no_broker_is_3_and_unknown_outcome_is_4(penstock: Penstock, fake: FakeCluster) -> None:
    fake.fail_next(create_topics.CreateTopicsRequest, "lost")
    unknown = penstock("topic", "create", "orders")
    assert unknown.code == 4
    assert "look before you repeat" in unknown.errors
    fake.is_down = True
    outcome = penstock("topic", "list", "--bootstrap-server", "nowhere:9000")
    assert outcome.code == 3
    assert "nowhere:9000" in outcome.errors
    assert "penstock serve" in outcome.errors


def test_produce_and_consume(penstock: Penstock, fake: FakeCluster, lines: Path) -> None:
    fake.add_topic("orders")
    words = ("--key-separator", ":", "--header", "h=x", "--compression", "lz4")
    sent = penstock("produce", "orders", "--file", str(lines), *words)
    assert sent == (0, "3 records sent to orders\n", "")
    assert read_header(fake.logs[TopicPartition("orders", 0)][0]).codec == 3
    assert penstock("consume", "orders").output == "1\n2\n3\n"
    shown = penstock("consume", "orders", "--show", "offset,key,headers,value", "--from", "-2")
    assert shown.output == "1\tb\th=x\t2\n2\ta\th=x\t3\n"
    assert penstock("consume", "orders", "--count", "1").output == "1\n"
    assert penstock("consume", "orders", "--count", "0").output == ""
    assert penstock("consume", "orders", "--from", "latest").output == ""
    followed = penstock("consume", "orders", "--follow", "--count", "3")
    assert followed.output == "1\n2\n3\n"


def test_consume_as_json_lines(penstock: Penstock, fake: FakeCluster, lines: Path) -> None:
    fake.add_topic("orders", 2)
    summary = penstock("produce", "orders", "--file", str(lines), "--partition", "1", "--json")
    sent = {"topic": "orders", "records": 3, "topic_created": False}
    assert json.loads(summary.output) == sent
    output = penstock("consume", "orders", "--json", "--partition", "1").output
    documents = [json.loads(line) for line in output.splitlines()]
    assert [(d["partition"], d["offset"], d["value"]) for d in documents] == [
        (1, 0, "a:1"),
        (1, 1, "b:2"),
        (1, 2, "a:3"),
    ]
    assert penstock("consume", "orders", "--partition", "0").output == ""


def test_nulls(penstock: Penstock, fake: FakeCluster, tmp_path: Path) -> None:
    fake.add_topic("orders")
    path = tmp_path / "lines"
    path.write_bytes(b"k:-\n")
    words = ("--key-separator", ":", "--null-marker", "-", "--acks", "1")
    assert penstock("produce", "orders", "--file", str(path), *words).code == 0
    (record,) = read_records(fake.logs[TopicPartition("orders", 0)][0])
    assert (record.key, record.value) == (b"k", None)


def test_a_failure_says_how_much_was_done(
    penstock: Penstock, fake: FakeCluster, tmp_path: Path
) -> None:
    fake.add_topic("orders")
    path = tmp_path / "lines"
    path.write_bytes(b"a:1\nb\n")
    outcome = penstock("produce", "orders", "--file", str(path), "--key-separator", ":")
    assert outcome.code == 1
    note, problem, hint = outcome.errors.splitlines()
    assert note == "1 record was acknowledged before this:"
    assert problem.startswith("error: line 2: missing key separator ':'. Earlier lines were sent;")
    assert hint == "hint: Write the line as key:value, or leave --key-separator out."
    assert len(fake.logs[TopicPartition("orders", 0)]) == 1


def test_a_refused_record(penstock: Penstock, fake: FakeCluster, lines: Path) -> None:
    fake.add_topic("orders")
    fake.fail_next(produce.ProduceRequest, ErrorCode.MESSAGE_TOO_LARGE)
    outcome = penstock("produce", "orders", "--file", str(lines))
    assert outcome.code == 1
    assert "MESSAGE_TOO_LARGE (10): orders-0" in outcome.errors
    assert "hint: Raise the limit with `penstock topic configure orders" in outcome.errors


def test_a_line_above_the_limit_is_named(
    penstock: Penstock, fake: FakeCluster, tmp_path: Path
) -> None:
    fake.add_topic("orders")
    fake.topic_settings["max.message.bytes"] = "1000"
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n" + b"x" * 2_000 + b"\nc\n")
    outcome = penstock("produce", "orders", "--file", str(path))
    assert outcome.code == 1
    note, problem, hint = outcome.errors.splitlines()
    assert note == "2 records were acknowledged before this:"
    assert problem.startswith("error: line 3: a record of 2,0")
    assert "max.message.bytes of topic orders (1,000)" in problem
    assert hint.startswith("hint: Raise the limit with `penstock topic configure orders")


def test_a_topic_that_is_created_by_producing_is_told(
    penstock: Penstock, fake: FakeCluster, lines: Path
) -> None:
    """A misspelt topic was created without a word."""
    fake.auto_create = True
    first = penstock("produce", "orders", "--file", str(lines))
    assert (first.code, first.output) == (0, "3 records sent to orders\n")
    created = "note: topic orders did not exist; the broker created it with 1 partition."
    assert first.errors.splitlines() == [created]
    assert penstock("produce", "orders", "--file", str(lines)).errors == ""
    second = penstock("produce", "ordres", "--file", str(lines), "--json")
    assert json.loads(second.output)["topic_created"] is True
    assert second.errors.splitlines()[1] == (
        "hint: Did you mean 'orders'? `penstock topic delete ordres` deletes the new topic."
    )


@pytest.mark.parametrize(
    "words",
    [
        ("consume", "nothing"),
        ("topic", "describe", "nothing"),
        ("topic", "configure", "nothing", "retention.ms=1"),
        ("topic", "alter", "nothing", "--partitions", "2"),
        ("topic", "delete", "--yes", "nothing"),
    ],
)
def test_a_topic_that_is_not_there_comes_with_a_remedy(
    penstock: Penstock, words: tuple[str, ...]
) -> None:
    outcome = penstock(*words)
    assert (outcome.code, outcome.output) == (1, "")
    problem, remedy = outcome.errors.splitlines()
    assert "nothing" in problem
    assert "penstock topic list" in remedy
    assert "penstock topic create" in remedy


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("consume", "orders", "--from", "NONSENSE"), "'NONSENSE' names no position. Use earliest"),
        (("consume", "orders", "--show", "colour"), "'colour' is no part of a record; there are"),
        (("produce", "orders", "--header", "x"), "header 'x' is not of the form name=value"),
        (("topic", "list", "--bootstrap-server", "a:b"), "a:b"),
        (("topic", "list", "--timeout", "soon"), "'soon' is not a number above 0, at most 86400."),
        (("topic", "list", "--timeout", "0"), "'0' is not a number above 0, at most 86400."),
        (("topic", "list", "--timeout", "nan"), "'nan' is not a number above 0, at most 86400."),
        (("topic", "list", "--timeout", "inf"), "'inf' is not a number above 0, at most 86400."),
        (("topic", "list", "--timeout", "1e10"), "'1e10' is not a number above 0"),
        (("doctor", "--timeout", "inf"), "'inf' is not a number above 0, at most 86400."),
        (("status", "--timeout", "inf"), "'inf' is not a number above 0, at most 86400."),
        (("status", "--timeout", "nan"), "'nan' is not a number above 0, at most 86400."),
        (("topic", "list", "--bootstrap-server", "a..b:9092"), "has a host that cannot be"),
        (("topic", "create", "orders", "--partitions", "many"), "a whole number of 1 or more."),
        (("topic", "create", "orders", "--partitions", "0"), "a whole number of 1 or more."),
        (("topic", "create", "orders", "--partitions", "1.5"), "a whole number of 1 or more."),
        (("consume", "orders", "--count", "-1"), "'-1' is not a whole number of 0 or more."),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_possible(
    penstock: Penstock, fake: FakeCluster, words: tuple[str, ...], told: str
) -> None:
    fake.add_topic("orders")
    outcome = penstock(*words)
    assert (outcome.code, outcome.output) == (2, "")
    assert told in outcome.errors
    assert not fake.requests


def test_an_advertised_address_that_is_wrong_is_told_at_once_and_at_the_end(
    penstock: Penstock, fake: FakeCluster
) -> None:
    """The command says where the address comes from, before it tries again and when it gives up."""
    fake.ports_down = {9001}
    outcome = penstock("topic", "create", "orders", "--timeout", "0.2")
    assert outcome.code == exits.UNREACHABLE
    note, problem, hint = outcome.errors.splitlines()
    assert note.startswith("note: ")
    assert note.endswith("for broker 1. Retrying for up to 0.2 s; Ctrl-C ends.")
    assert "The cluster at localhost:9092 advertises this address for broker 1." in problem
    assert "`penstock doctor --bootstrap-server localhost:9092`" in hint
