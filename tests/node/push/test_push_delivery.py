"""Push on a real broker: deliveries, credit, groups, restarts of sessions, several formats."""

import asyncio

import pytest

from penstock.client.push import PushClosedError, PushRequestError
from penstock.edge.push import limits
from penstock.protocol.push.frames import FrameType, encode_frame
from penstock.records.builder import build_batch, read_records
from penstock.records.record import Record
from tests.node.push.push_stage import connect, push_broker, run, take


def test_a_record_is_pushed_when_it_is_published() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            subscription = await client.subscribe("t")
            assert subscription.positions == {0: 0}
            headers = (("h", b"x"), ("n", None))
            placed = await client.publish("t", b"v", key=b"k", headers=headers, timestamp_ms=77)
            assert (placed.partition, placed.offset) == (0, 0)
            (record,) = await take(subscription, 1)
            assert (record.key, record.value, record.headers) == (b"k", b"v", headers)
            assert (record.offset, record.timestamp_ms, record.leader_epoch) == (0, 77, 0)
            await client.publish("t", None, key=b"k")
            (record,) = await take(subscription, 1)
            assert record.value is None
            assert broker.metrics()["push_delivered_records_total"] == 2
            assert broker.metrics()["push_published_records_total"] == 2

    run(test)


def test_a_group_continues_behind_its_acknowledged_records() -> None:
    async def test() -> None:
        async with push_broker(topics={"t": 3}) as broker:
            async with await connect(broker) as client:
                subscription = await client.subscribe("t", group="g")
                for number in range(9):
                    await client.publish("t", b"%d" % number, partition=number % 3)
                assert len(await take(subscription, 5)) == 5
            async with await connect(broker) as client:
                subscription = await client.subscribe("t", group="g")
                assert sum(subscription.positions.values()) == 5
                values = {one.value for one in await take(subscription, 4)}
                assert len(values) == 4

    run(test)


def test_records_that_are_not_acknowledged_come_again() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            client = await connect(broker)
            subscription = await client.subscribe("t", group="g")
            for number in range(3):
                await client.publish("t", b"%d" % number)
            first = await anext(subscription)
            subscription.acknowledge(first)
            await anext(subscription)
            await subscription.close()
            async with await connect(broker) as other:
                again = await other.subscribe("t", group="g")
                assert [one.value for one in await take(again, 2)] == [b"1", b"2"]
            await client.close()

    run(test)


def test_a_group_without_a_commit_misses_nothing_after_its_first_subscription() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            client = await connect(broker)
            await client.publish("t", b"before")
            await client.subscribe("t", group="g")
            await client.close()
            await broker.publish("t", b"while it was gone")
            async with await connect(broker) as other:
                subscription = await other.subscribe("t", group="g")
                assert [one.value for one in await take(subscription, 1)] == [b"while it was gone"]

    run(test)


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 5), ({0: 2}, 2)], ids=str)
def test_a_subscription_starts_where_it_asks(start: object, first: int) -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            for _ in range(5):
                await client.publish("t", b"v")
            subscription = await client.subscribe("t", start=start)  # type: ignore[arg-type]
            await client.publish("t", b"v")
            assert [one.offset for one in await take(subscription, 6 - first)] == list(
                range(first, 6)
            )

    run(test)


def test_credit_is_the_bound_of_records_in_flight() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            subscription = await client.subscribe("t", credit=4)
            await asyncio.gather(*(client.publish("t", b"v") for _ in range(20)))
            while len(subscription) < 4:  # noqa: ASYNC110 (the stage has a time limit)
                await asyncio.sleep(0)
            await client.publish("t", b"v")
            assert len(subscription) == 4
            assert broker.metrics()["push_delivered_records_total"] == 4
            assert [one.offset for one in await take(subscription, 21)] == list(range(21))

    run(test)


def test_stored_batches_are_sent_as_they_are() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            subscription = await client.subscribe("t", format="batch")
            records = [Record(b"k", b"%d" % number, (), 5) for number in range(10)]
            batch = bytes(build_batch(records, codec=4))
            assert (await client.publish_batch("t", batch)).offset == 0
            (found,) = await take(subscription, 1)
            assert found.is_batch
            assert found.value is not None
            assert found.value[21:] == batch[21:]
            assert [one.value for one in read_records(found.value)] == [
                one.value for one in records
            ]

    run(test)


def test_a_compressed_batch_is_unfolded_for_records() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            subscription = await client.subscribe("t")
            count = limits.UNFOLD_ON_LOOP_RECORDS_MAX + 10
            records = [Record(None, b"%d" % number, (), 5) for number in range(count)]
            await client.publish_batch("t", bytes(build_batch(records, codec=3)))
            found = await take(subscription, count)
            assert [one.value for one in found] == [one.value for one in records]

    run(test)


def test_sessions_share_what_was_read() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            clients = [await connect(broker) for _ in range(5)]
            subscriptions = [await one.subscribe("t") for one in clients]
            await broker.publish("t", b"v")
            for one in subscriptions:
                assert [found.value for found in await take(one, 1)] == [b"v"]
            assert broker._push is not None
            cache = broker._push.server.cache
            cache.validate()
            assert (cache.hits, cache.misses) == (4, 1)
            for client in clients:
                await client.close()

    run(test)


def test_many_publishes_keep_their_order() -> None:
    async def test() -> None:
        async with push_broker(topics={"t": 2}) as broker, await connect(broker) as client:
            subscription = await client.subscribe("t", credit=100_000)
            work = [client.publish("t", b"%d" % number, key=b"k") for number in range(1_200)]
            placed = await asyncio.gather(*work)
            assert [one.offset for one in placed] == list(range(1_200))
            values = [one.value for one in await take(subscription, 1_200)]
            assert values == [b"%d" % number for number in range(1_200)]

    run(test)


@pytest.mark.parametrize(
    ("topic", "options", "code"),
    [
        ("missing", {}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", {"mode": "queue", "format": "batch"}, "INVALID_REQUEST"),
        ("t", {"mode": "queue", "start": "earliest"}, "INVALID_REQUEST"),
        ("t", {"start": {0: 5}}, "OFFSET_OUT_OF_RANGE"),
        ("t", {"start": {7: 0}}, "NOT_LEADER_OR_FOLLOWER"),
        ("t", {"start": "committed"}, "INVALID_REQUEST"),
    ],
)
def test_a_subscription_is_refused_with_its_code(
    topic: str, options: dict[str, object], code: str
) -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            with pytest.raises(PushRequestError) as refused:
                await client.subscribe(topic, **options)  # type: ignore[arg-type]
            assert refused.value.code == code
            await client.publish("t", b"the session goes on")

    run(test)


def test_an_oversized_record_is_refused() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            await client.publish("t", b"opens the subscription")
            with pytest.raises(PushClosedError, match="at most 1048623 are accepted"):
                await client.publish("t", bytes(1_100_000))

    run(test)


def test_a_batch_that_is_damaged_is_refused() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            batch = build_batch([Record(b"k", b"v")])
            batch[-1] ^= 1
            with pytest.raises(PushRequestError) as refused:
                await client.publish_batch("t", bytes(batch))
            assert refused.value.code == "CORRUPT_MESSAGE"
            assert (await client.publish("t", b"v")).offset == 0

    run(test)


def test_a_deleted_topic_ends_the_session() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            subscription = await client.subscribe("t")
            topics = broker._running.services.topics
            topic = broker._running.metadata.image.topic("t")
            assert topic is not None
            await topics.delete([topic.id])
            with pytest.raises(PushClosedError) as ended:
                await anext(subscription)
            assert ended.value.retry_after_ms == limits.RETRY_AFTER_MS_MIN

    run(test)


def test_a_stopping_broker_says_when_to_come_back() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            client = await connect(broker)
            subscription = await client.subscribe("t")
        with pytest.raises(PushClosedError, match="the broker stops") as ended:
            await anext(subscription)
        await client.close()
        wait_ms = ended.value.retry_after_ms
        assert wait_ms is not None
        assert limits.RETRY_AFTER_MS_MIN <= wait_ms <= limits.RETRY_AFTER_MS_MAX

    run(test)


def test_a_client_that_sends_no_frames_is_closed_with_a_reason() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.push_port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            answer = await reader.read()
            assert answer[0] == FrameType.DISCONNECT
            assert b"type 71 is unknown" in answer
            writer.close()

    run(test)


def test_a_slow_consumer_delays_no_other() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            # It subscribes and never reads its socket.
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", broker.push_port, limit=1_024
            )
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            request = b'{"topic":"t","credit":100000}'
            writer.write(encode_frame(FrameType.SUBSCRIBE, 1, request))
            client = await connect(broker)
            subscription = await client.subscribe("t")
            for _ in range(40):
                await client.publish("t", bytes(500_000))
                await take(subscription, 1)
            assert broker._push is not None
            server = broker._push.server
            held = [one for one in server.connections if one.unsent_bytes]
            assert len(held) == 1
            # The unacknowledged bytes are its bound, and the socket holds one turn at most.
            assert held[0].session.unacknowledged_bytes <= limits.UNACKNOWLEDGED_BYTES_MAX
            assert held[0].unsent_bytes <= limits.WRITE_BUFFER_BYTES_HIGH + 500_100
            writer.transport.abort()
            await client.close()
            del reader

    run(test)
