"""Queue mode of push on a real broker: one record to one subscriber, beside Kafka's members."""

import asyncio
from collections import Counter
from uuid import UUID

import pytest

from penstock import BrokerServer
from penstock.client.push import PushRecord, PushRequestError, PushSubscription
from penstock.protocol.messages import metadata
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.sharing import Got, Member
from tests.node.push.push_stage import connect, push_broker, run

SHORT_LOCKS = """
[node]
storage = "memory"
[listener]
port = 0
[edge]
push_port = 0
[groups]
share_record_lock_duration_ms_min = 1000
"""


async def next_of(subscription: PushSubscription, seconds: float = 20.0) -> PushRecord:
    """Return the next record."""
    async with asyncio.timeout(seconds):
        return await anext(subscription)


async def publish(broker: BrokerServer, count: int, topic: str = "t") -> None:
    """Publish numbered records."""
    for number in range(count):
        await broker.publish(topic, b"%d" % number, partition=0)


def test_subscribers_share_the_records_of_a_queue() -> None:
    async def test() -> None:
        async with (
            push_broker() as broker,
            await connect(broker) as one,
            await connect(broker) as other,
        ):
            # One record in flight at a time, so both get some.
            first = await one.subscribe("t", group="q", mode="queue", credit=1)
            second = await other.subscribe("t", group="q", mode="queue", credit=1)
            assert first.queue_group == "q"
            assert first.lock_seconds == 30
            await publish(broker, 2)
            records = [await next_of(first), await next_of(second)]
            assert {record.value for record in records} == {b"0", b"1"}
            assert [record.delivery_count for record in records] == [1, 1]
            first.acknowledge(records[0])
            second.acknowledge(records[1])
            await publish(broker, 10)
            counts: Counter[bytes | None] = Counter()
            for _ in range(5):
                for subscription in (first, second):
                    record = await next_of(subscription)
                    subscription.acknowledge(record)
                    counts[record.value] += 1
            assert counts == Counter(b"%d" % number for number in range(10))

    run(test)


def test_released_and_rejected_records() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            queue = await client.subscribe("t", group="q", mode="queue")
            await publish(broker, 2)
            record, other = await next_of(queue), await next_of(queue)
            queue.reject(other)
            queue.release(record)
            again = await next_of(queue)
            assert (again.value, again.delivery_count) == (b"0", 2)
            queue.renew(again)
            queue.acknowledge(again)
            await broker.publish("t", b"last")
            assert (await next_of(queue)).value == b"last"

    run(test)


def test_a_lost_connection_releases_its_records_at_once() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            lost = await connect(broker)
            queue = await lost.subscribe("t", group="q", mode="queue", credit=5)
            await publish(broker, 3)
            for _ in range(3):
                await next_of(queue)
            other = await client.subscribe("t", group="q", mode="queue")
            assert lost._transport is not None
            lost._transport.abort()
            found = [await next_of(other) for _ in range(3)]
            assert [(one.value, one.delivery_count) for one in found] == [
                (b"0", 2),
                (b"1", 2),
                (b"2", 2),
            ]

    run(test)


def test_acknowledgements_survive_the_end_of_a_session() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            async with await connect(broker) as client:
                queue = await client.subscribe("t", group="q", mode="queue")
                await publish(broker, 3)
                for _ in range(2):
                    queue.acknowledge(await next_of(queue))
            async with await connect(broker) as client:
                queue = await client.subscribe("t", group="q", mode="queue")
                assert (await next_of(queue)).value == b"2"

    run(test)


@pytest.mark.slow
def test_an_expired_lock_frees_credit_and_delivers_again() -> None:
    async def test() -> None:
        async with push_broker(SHORT_LOCKS) as broker, await connect(broker) as client:
            with Asker(broker.port) as asker:
                member = Member(asker, "q")
                await asyncio.to_thread(member.set, share_record_lock_duration_ms="1000")
            queue = await client.subscribe("t", group="q", mode="queue", credit=1)
            assert queue.lock_seconds == 1
            await publish(broker, 1)
            first = await next_of(queue)
            again = await next_of(queue)
            assert (again.offset, again.delivery_count) == (first.offset, 2)
            queue.acknowledge(first)  # late: the lock of this delivery is gone
            queue.acknowledge(again)
            await broker.publish("t", b"next")
            assert (await next_of(queue)).value == b"next"
            assert broker.metrics()["push_expired_locks_total"] == 1

    run(test)


def test_push_subscribers_and_members_of_kafkas_protocol_share_one_group() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            queue = await client.subscribe("t", group="q", mode="queue", credit=2)
            await publish(broker, 2)
            mine = [await next_of(queue), await next_of(queue)]
            await publish(broker, 2)
            got = await asyncio.to_thread(_kafka_member, broker.port)
            assert got == [Got(2, 3, 1)], "the records that the push subscriber does not have"
            for record in mine:
                queue.acknowledge(record)

    run(test)


def _topic_id(asker: Asker) -> UUID | None:
    request = metadata.MetadataRequest(
        topics=(metadata.MetadataRequestTopic(name="t"),), allow_auto_topic_creation=False
    )
    (topic,) = asker.ask(request, 12, metadata.MetadataResponse).topics
    return topic.topic_id


def _kafka_member(port: int) -> list[Got]:
    with Asker(port) as asker:
        member = Member(asker, "q")
        member.join("t")
        topic_id = _topic_id(asker)
        got = member.fetch_until(topic_id, 0)
        member.acknowledge(topic_id, *((one.first, one.last, (1,)) for one in got))
        return got


def test_a_topic_with_routing_queue_needs_no_mode() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            await broker.create_topic("orders", routing="queue")
            queue = await client.subscribe("orders")
            assert queue.queue_group == "orders"
            inside = await broker.subscribe("orders")
            assert inside.queue_group == "orders"
            fanout = await client.subscribe("t", group="g")
            assert fanout.queue_group is None
            with pytest.raises(ValueError, match="not a queue"):
                fanout.release(PushRecord("t", 0, 0, 0, None, b"", (), 0, 0, 1))
            everyone = await (await connect(broker)).subscribe("orders", mode="fanout")
            assert everyone.queue_group is None

    run(test)


def test_a_group_of_another_type_is_refused() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            await client.subscribe("t", group="g")
            await client.unsubscribe("t")
            with pytest.raises(PushRequestError, match="not a share group"):
                await client.subscribe("t", group="g", mode="queue")

    run(test)


def validate_sessions(broker: BrokerServer) -> None:
    """Assert the invariants of all sessions: no more records are in flight than credit allows."""
    assert broker._push is not None
    for connection in broker._push.server.connections:
        connection.session.validate()


def test_compressed_batches_and_small_credit() -> None:
    """A large batch is acquired in parts, in order, each record once."""

    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            queue = await client.subscribe("t", group="q", mode="queue", credit=7)
            records = [Record(None, b"%d" % number, (), 0) for number in range(300)]
            await client.publish_batch("t", bytes(build_batch(records, codec=4)))
            values = []
            for _ in records:
                record = await next_of(queue)
                validate_sessions(broker)
                values.append(record.value)
                queue.acknowledge(record)
            assert values == [one.value for one in records]

    run(test)
