"""Reading and waiting: shown and hidden records, messages of failures, errors that are retried."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.testing import AsyncBroker, Broker, RecordsMissingError, TopicRecord
from penstock.testing.topic_records import SHOWN_RECORDS_MAX
from tests.broker.handlers.asker import fresh_name


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_keys_values_and_headers_are_texts_and_bytes(broker: Broker) -> None:
    topic = fresh_name()
    broker.produce(topic, '{"total": 5}', key="42", headers={"trace": b"\x01", "kind": "new"})
    broker.produce(topic, None, key=b"\xff")
    first, second = broker.records(topic)
    assert (first.key, first.value, first.json()) == ("42", '{"total": 5}', {"total": 5})
    assert first.headers == {"trace": "\x01", "kind": "new"}
    assert (second.key_bytes, second.value, second.headers) == (b"\xff", None, {})
    assert r"\xff" in str(second), "a key that is no text can still be shown"


def test_records_come_by_partition_and_offset(broker: Broker) -> None:
    topic = fresh_name()
    broker.create_topic(topic, partitions=3)
    for partition in (2, 0, 1, 0):
        broker.produce(topic, f"{partition}", partition=partition)
    assert [record.value for record in broker.records(topic)] == ["0", "0", "1", "2"]
    assert [record.value for record in broker.records(topic, partitions=[1, 2])] == ["1", "2"]


def test_a_topic_that_is_not_there_is_an_error_unless_it_is_waited_for(broker: Broker) -> None:
    topic = fresh_name()
    with pytest.raises(UnknownTopicOrPartitionError):
        broker.records(topic)
    timer = threading.Timer(0.03, broker.produce, (topic, "late"))
    timer.start()
    assert [record.value for record in broker.records(topic, count=1)] == ["late"]
    timer.join()


def test_it_waits_while_the_broker_is_down() -> None:
    with Broker() as broker:
        broker.produce("orders", "before")
        broker.crash()

        def come_back() -> None:
            broker.restart()
            broker.produce("orders", "after")

        timer = threading.Timer(0.03, come_back)
        timer.start()
        assert [record.value for record in broker.records("orders", count=2)] == ["before", "after"]
        timer.join()


def test_without_time_to_wait_there_is_time_to_look() -> None:
    with Broker() as broker:
        broker.produce("orders", "there")
        with broker.throttled(latency_ms=20):
            found = broker.records("orders", count=1, timeout_seconds=0)
    assert [record.value for record in found] == ["there"]


def test_a_broker_that_goes_away_does_not_make_the_wait_longer() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        timer = threading.Timer(0.9, broker.crash)
        timer.start()
        begun = time.monotonic()
        with pytest.raises(RecordsMissingError, match="last look failed"):
            broker.records("orders", count=1, timeout_seconds=1.0)
        assert time.monotonic() - begun < 1.4
        timer.join()


def test_a_failure_shows_what_arrived(broker: Broker) -> None:
    topic = fresh_name()
    broker.produce(topic, "one", "two", key="k")
    with pytest.raises(RecordsMissingError) as caught:
        broker.records(topic, count=3, timeout_seconds=0.02)
    assert str(caught.value) == (
        f"3 records were expected in '{topic}', 2 arrived within 0.02 s\n"
        f"  {topic}-0 at 0: key 'k', value 'one'\n"
        f"  {topic}-0 at 1: key 'k', value 'two'"
    )
    assert isinstance(caught.value, AssertionError), "pytest tells it as a failure, not an error"


def test_a_failure_does_not_show_thousands(broker: Broker) -> None:
    topic = fresh_name()
    broker.produce(topic, *(f"{number}" for number in range(100)))
    with pytest.raises(RecordsMissingError) as caught:
        broker.records(topic, count=101, timeout_seconds=0.02)
    assert f"... {100 - 2 * SHOWN_RECORDS_MAX} more ..." in str(caught.value)
    assert str(caught.value).count("\n") == 2 * SHOWN_RECORDS_MAX + 1


def test_a_failure_says_why_a_look_failed() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.crash()
        with pytest.raises(RecordsMissingError, match="last look failed: cannot reach a broker"):
            broker.records("orders", count=1, timeout_seconds=0.02)


def test_on_an_event_loop_it_does_not_wait(broker: Broker) -> None:
    topic = fresh_name()
    broker.produce(topic, "one")

    async def ask() -> list[TopicRecord]:
        assert len(broker.records(topic, count=1)) == 1
        with pytest.raises(RecordsMissingError, match="would stop the event loop"):
            broker.records(topic, count=2)
        again = AsyncBroker.of(broker)
        waiting = asyncio.gather(again.records(topic, count=2), again.produce(topic, "two"))
        return (await waiting)[0]

    assert [record.value for record in asyncio.run(ask())] == ["one", "two"]


def test_the_async_face_has_the_same_faults() -> None:
    async def use() -> None:
        async with AsyncBroker() as broker:
            await broker.create_topic("orders")
            await broker.produce("orders", "before")
            async with broker.paused():
                with pytest.raises(RecordsMissingError):
                    await broker.records("orders", count=1, timeout_seconds=0.02)
            async with broker.crashed():
                assert not broker.broker.is_running
            async with broker.throttled(latency_ms=1):
                await broker.drop_connections()
            with broker.full_disk():
                assert len(await broker.records("orders")) == 1
            await broker.restart()
            assert [record.value for record in await broker.records("orders")] == ["before"]

    asyncio.run(use())
