"""Dead letters of share groups on a broker: Kafka's headers, causes, refusals and crashes."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from penstock.client.opening import open_cluster
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.options import ClientOptions
from penstock.core.errors import BrokerAnswerError
from penstock.core.settings.config import load_settings
from penstock.node.shares import letter_sender
from penstock.testing import Broker, TopicRecord
from tests.broker.handlers.asker import Asker, batch_of
from tests.broker.handlers.sharing import Member, acknowledge_codes, acquired

ALLOWED = {"errors.deadletterqueue.group.enable": "true"}
QUICK = {
    "share.auto.offset.reset": "earliest",
    "share.assignment.interval.ms": "0",
    "share.delivery.count.limit": "2",
}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_sender, "PAUSE_SECONDS_MIN", 0.05)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "the condition does not come true"
        time.sleep(0.01)


def member_of(asker: Asker, **settings: str) -> Member:
    member = Member(asker, "packing")
    dotted = {**QUICK, **{name.replace("_", "."): value for name, value in settings.items()}}
    member.set(**{name.replace(".", "_"): value for name, value in dotted.items()})
    member.join("orders")
    return member


def headers_of(record: TopicRecord) -> Mapping[str, str]:
    prefix = "__dlq.errors."
    return {
        name.removeprefix(prefix): value
        for name, value in record.headers.items()
        if name.startswith(prefix) and value is not None
    }


def test_rejected_and_exhausted_records_get_letters() -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        topic_id = asker.create("orders")
        broker.create_topic("dlq.orders", configs=ALLOWED)
        broker.produce("orders", "a", "b", "c", key="k", headers={"h": "1"})
        member = member_of(
            asker,
            errors_deadletterqueue_topic_name="dlq.orders",
            errors_deadletterqueue_copy_record_enable="true",
        )
        assert sum(one.last - one.first + 1 for one in member.fetch_until(topic_id, 0)) == 3
        # 0 is rejected, 1 released twice, 2 accepted.
        assert acknowledge_codes(
            member.acknowledge(topic_id, (0, 0, (3,)), (1, 1, (2,)), (2, 2, (1,)))
        ) == [0]
        (again,) = member.fetch_until(topic_id, 0)
        assert again == (1, 1, 2)
        assert acknowledge_codes(member.acknowledge(topic_id, (1, 1, (2,)))) == [0]
        letters = broker.records("dlq.orders", count=2)
        assert [headers_of(one) for one in letters] == [
            {
                "topic": "orders",
                "partition": "0",
                "offset": offset,
                "group": "packing",
                "delivery.count": count,
                "message": message,
            }
            for offset, count, message in (
                ("0", "1", "Offset rejected by client."),
                ("1", "2", "Offset delivery count exceeded the threshold."),
            )
        ]
        assert [(one.key_bytes, one.value_bytes) for one in letters] == [
            (b"k", b"a"),
            (b"k", b"b"),
        ]
        assert all(list(one.headers.items())[-1] == ("h", "1") for one in letters)
        until(lambda: lag_of(broker) == 0)
        metrics = broker.metrics()
        assert metrics['share_dead_letters_total{group="packing"}'] == 2
        assert metrics["share_redeliveries_total"] == 1
        assert metrics["share_deliveries_total"] == 4


def lag_of(broker: Broker) -> float:
    name = 'share_lag_records{group="packing",topic="orders",partition="0"}'
    return broker.metrics()[name]


def test_without_copies_a_letter_has_headers_only_and_no_topic_no_letters() -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        topic_id = asker.create("orders")
        broker.create_topic("dlq.orders", partitions=2, configs=ALLOWED)
        broker.produce("orders", "a", "b")
        member = member_of(asker)
        member.fetch_until(topic_id, 0)
        member.acknowledge(topic_id, (0, 0, (3,)))
        until(lambda: lag_of(broker) == 1)
        member.set(errors_deadletterqueue_topic_name="dlq.orders")
        member.acknowledge(topic_id, (1, 1, (3,)))
        (letter,) = broker.records("dlq.orders", count=1)
        assert (letter.key_bytes, letter.value_bytes, letter.partition) == (None, None, 0)
        assert headers_of(letter)["offset"] == "1"


@pytest.mark.parametrize(
    ("configs", "problem"),
    [
        (None, "does not exist. Create it"),
        ({}, "does not allow dead letters"),
        ({**ALLOWED, "cleanup.policy": "compact"}, "refuses them"),
        ({**ALLOWED, "max.message.bytes": "80"}, "refuses them"),
    ],
)
def test_a_broken_topic_stops_the_letters_and_not_the_queue(
    configs: dict[str, str] | None, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        topic_id = asker.create("orders")
        if configs is not None:
            broker.create_topic("dlq.orders", configs=configs)
        broker.produce("orders", "a")
        member = member_of(asker, errors_deadletterqueue_topic_name="dlq.orders")
        member.fetch_until(topic_id, 0)
        assert acknowledge_codes(member.acknowledge(topic_id, (0, 0, (3,)))) == [0]
        until(lambda: 'share_dead_letter_failures_total{group="packing"}' in broker.metrics())
        assert broker.metrics()['share_dead_letters_waiting{group="packing"}'] == 1
        (line,) = [one for one in caplog.messages if "dead letters" in one]
        assert line.startswith("dead letters of share group 'packing' wait: ")
        assert problem in line
        # More records than the window of 2,000: the queue goes on.
        for _ in range(5):
            broker.produce("orders", *("x" for _ in range(500)))
        accepted = 0
        while accepted < 2500:
            for one in member.fetch_until(topic_id, 0):
                accepted += one.last - one.first + 1
                member.acknowledge(topic_id, (one.first, one.last, (1,)))
        until(lambda: lag_of(broker) == 1)
        assert acquired(member.fetch(topic_id, 0, wait_ms=0)) == []


def test_a_forged_header_is_left_out_and_a_large_record_has_no_copy() -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        topic_id = asker.create("orders")
        broker.create_topic("dlq.orders", configs={**ALLOWED, "max.message.bytes": "2000"})
        forged = {"__dlq.errors.topic": "payments", "__dlq.errors.other": "x"}
        broker.produce("orders", "small", headers=forged)
        broker.produce("orders", "x" * 5000)
        member = member_of(
            asker,
            errors_deadletterqueue_topic_name="dlq.orders",
            errors_deadletterqueue_copy_record_enable="true",
        )
        got = 0
        while got < 2:
            for one in member.fetch_until(topic_id, 0):
                got += one.last - one.first + 1
                member.acknowledge(topic_id, (one.first, one.last, (3,)))
        small, large = broker.records("dlq.orders", count=2)
        assert headers_of(small)["topic"] == "orders"
        assert "other" not in headers_of(small)
        assert small.value_bytes == b"small"
        assert large.value_bytes is None
        assert "bytes, too many for a copy" in headers_of(large)["message"]


def test_a_missing_topic_is_created_if_the_settings_allow_it() -> None:
    text = (
        "[groups]\ndead_letter_auto_create = true\n[node]\nstorage = 'memory'\n[listener]\nport=0"
    )
    settings = load_settings(text, {}, {}).settings
    with Broker(settings=settings) as broker, Asker(broker.port) as asker:
        topic_id = asker.create("orders")
        broker.produce("orders", "a")
        member = member_of(asker, errors_deadletterqueue_topic_name="dlq.new")
        member.fetch_until(topic_id, 0)
        member.acknowledge(topic_id, (0, 0, (3,)))
        until(lambda: lag_of(broker) == 0)
        (letter,) = broker.records("dlq.new", count=1)
        assert headers_of(letter)["offset"] == "0"


def test_letters_that_wait_are_written_after_a_crash(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        with Asker(broker.port) as asker:
            topic_id = asker.create("orders")
            broker.produce("orders", "a", "b")
            member = member_of(asker, errors_deadletterqueue_topic_name="dlq.orders")
            member.fetch_until(topic_id, 0)
            assert acknowledge_codes(member.acknowledge(topic_id, (0, 0, (3,)))) == [0]
            until(lambda: 'share_dead_letter_failures_total{group="packing"}' in broker.metrics())
        broker.crash()
        broker.restart()
        broker.create_topic("dlq.orders", configs=ALLOWED)
        with Asker(broker.port) as asker:
            member = Member(asker, "packing")
            member.join("orders")
            # The rejected record is not delivered again, although its letter was never written.
            assert [one[:2] for one in member.fetch_until(topic_id, 0)] == [(1, 1)]
            (letter,) = broker.records("dlq.orders", count=1)
            assert headers_of(letter)["message"] == "Offset rejected by client."
            until(lambda: lag_of(broker) == 1)


def test_a_group_without_a_topic_any_more_archives_without_letters() -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        topic_id = asker.create("orders")
        broker.produce("orders", "a")
        member = member_of(asker, errors_deadletterqueue_topic_name="dlq.orders")
        member.fetch_until(topic_id, 0)
        member.acknowledge(topic_id, (0, 0, (3,)))
        until(lambda: 'share_dead_letter_failures_total{group="packing"}' in broker.metrics())
        member.set(errors_deadletterqueue_topic_name="")
        until(lambda: lag_of(broker) == 0)


def test_buffer_size_bounds_the_records_in_flight() -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        broker.create_topic("orders", configs={"penstock.buffer.size": "3"})
        topic_id = asker.describe("orders").topic_id
        asker.produce("orders", batch_of(*(b"%d" % number for number in range(50))))
        member = member_of(asker)
        assert member.fetch_until(topic_id, 0) == [(0, 2, 1)]
        assert acquired(member.fetch(topic_id, 0, wait_ms=0)) == []
        member.acknowledge(topic_id, (0, 1, (1,)))
        assert member.fetch_until(topic_id, 0) == [(3, 4, 1)]


def test_a_group_never_writes_letters_into_the_topic_that_it_reads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        broker.create_topic("dlq.orders", configs=ALLOWED)
        topic_id = asker.describe("dlq.orders").topic_id
        broker.produce("dlq.orders", "a")
        member = Member(asker, "packing")
        member.set(
            share_auto_offset_reset="earliest",
            share_assignment_interval_ms="0",
            errors_deadletterqueue_topic_name="dlq.orders",
        )
        member.join("dlq.orders")
        member.fetch_until(topic_id, 0)
        member.acknowledge(topic_id, (0, 0, (3,)))
        until(lambda: any("reads topic 'dlq.orders' itself" in one for one in caplog.messages))
        assert len(broker.records("dlq.orders")) == 1


def test_the_prefix_is_checked_when_the_group_is_configured() -> None:
    setting = "errors.deadletterqueue.topic.name"
    with (
        Broker() as broker,
        open_cluster(ClientOptions(parse_addresses(broker.bootstrap_server))) as cluster,
    ):
        with pytest.raises(BrokerAnswerError, match=r"begin with 'dlq\.'"):
            cluster.configure_group("packing", {setting: "orders"})
        cluster.configure_group("packing", {setting: "dlq.orders"})
        cluster.configure_group("packing", {setting: ""})


def test_health_names_the_group_until_a_letter_is_written() -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        topic_id = asker.create("orders")
        broker.produce("orders", "a")
        member = member_of(asker, errors_deadletterqueue_topic_name="dlq.orders")
        member.fetch_until(topic_id, 0)
        member.acknowledge(topic_id, (0, 0, (3,)))
        shares = broker._last_server()._running.services.shares
        assert shares is not None
        until(lambda: shares.problems)
        (problem,) = shares.problems
        assert "'packing'" in problem
        broker.create_topic("dlq.orders", configs=ALLOWED)
        until(lambda: not shares.problems)
