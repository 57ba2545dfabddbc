"""Consumers over push, on a broker in this event loop: fanout, queue, retry, lost connections."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from penstock import BrokerServer
from penstock.client.push import open_push
from penstock.consumers.application import Consumer
from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.decorator import consumer
from penstock.consumers.errors import ConsumerError, ConsumerStoppedError
from penstock.consumers.push import push_transport
from penstock.consumers.push.push_progress import DeliveredOrder
from penstock.consumers.push.push_settings import push_address
from penstock.consumers.retry_policy import RetryPolicy
from penstock.core.errors import BrokerUnreachableError, ConfigError
from penstock.core.types import TopicPartition
from tests.node.push.push_stage import push_broker, take

ONCE = RetryPolicy(attempts=1)
FAST = RetryPolicy(attempts=3, backoff="1ms..2ms")


def consumer_at(
    broker: BrokerServer, handler: Callable[[ConsumerRecord], Awaitable[None]], **options: object
) -> Consumer:
    """Return a consumer of the topic `t` by push."""
    chosen: dict[str, object] = {
        "topic": "t", "group": "g", "transport": "push",
        "push_server": f"127.0.0.1:{broker.push_port}", "retry": ONCE,
    }  # fmt: skip
    return consumer(**(chosen | options))(handler)  # type: ignore[arg-type]


async def publish(broker: BrokerServer, count: int, first: int = 0) -> None:
    """Publish numbered records to all partitions."""
    for number in range(first, first + count):
        await broker.publish("t", b"%d" % number, key=b"%d" % (number % 7))


class Seen:
    """A handler that keeps values, and an event for a number of them."""

    def __init__(self, wanted: int) -> None:
        self.values: list[bytes | None] = []
        self.wanted = wanted
        self.is_enough = asyncio.Event()

    async def __call__(self, record: ConsumerRecord) -> None:
        self.values.append(record.value)
        if len(self.values) >= self.wanted:
            self.is_enough.set()


async def run_until(one: Consumer, is_enough: asyncio.Event) -> None:
    """Run a consumer until the event, then stop it in order."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(one.run())
        waiting = tasks.create_task(is_enough.wait())
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        one.stop()


def test_fanout_starts_at_the_beginning_and_continues_where_it_stopped() -> None:
    async def test() -> None:
        async with push_broker(topics={"t": 3}) as broker:
            await publish(broker, 30)
            seen = Seen(30)
            await run_until(consumer_at(broker, seen), seen.is_enough)
            assert Counter(seen.values) == Counter(b"%d" % number for number in range(30))
            await publish(broker, 5, first=30)
            again = Seen(5)
            await run_until(consumer_at(broker, again), again.is_enough)
            assert sorted(again.values) == [b"%d" % n for n in range(30, 35)]  # type: ignore[type-var]

    asyncio.run(test())


def test_a_record_that_is_not_done_is_delivered_again() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            await publish(broker, 3)

            async def fail(record: ConsumerRecord) -> None:
                if record.value == b"1":
                    raise ValueError("no")

            with pytest.raises(ConsumerStoppedError):
                await consumer_at(broker, fail, order="partition").run()
            seen = Seen(2)
            await run_until(consumer_at(broker, seen), seen.is_enough)
            assert seen.values == [b"1", b"2"]

    asyncio.run(test())


@pytest.mark.parametrize("mode", ["fanout", "queue"])
def test_dead_letters(mode: str) -> None:
    async def test() -> None:
        async with push_broker(topics={"t": 1, "dlq.t": 1, "retry.g.t": 1}) as broker:
            letters = await broker.subscribe("dlq.t")
            seen = Seen(2)

            async def fail(record: ConsumerRecord) -> None:
                if record.value == b"1":
                    raise ValueError("no")
                await seen(record)

            one = consumer_at(broker, fail, mode=mode, dead_letter="dlq.t", retry=FAST)
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(one.run())
                if mode == "queue":
                    await until_subscribed(broker)
                await publish(broker, 3)
                (letter,) = await take(letters, 1)
                await seen.is_enough.wait()
                one.stop()
            await running
            assert letter.value == b"1"
            assert dict(letter.headers)["penstock.attempts"] == b"3"
            await letters.close()

    asyncio.run(test())


async def until_subscribed(broker: BrokerServer, count: int = 1) -> None:
    """Wait until push sessions have subscriptions: a share group starts at the end of a topic."""
    assert broker._push is not None
    sessions = broker._push.server.connections
    async with asyncio.timeout(10):
        while (  # noqa: ASYNC110 (has a deadline)
            sum(
                each.is_open and each.request.mode == "queue"
                for one in sessions
                for each in one.session.subscriptions.values()
            )
            < count
        ):
            await asyncio.sleep(0.005)


def test_a_queue_is_shared_by_two_consumers() -> None:
    async def test() -> None:
        async with push_broker(topics={"t": 2}) as broker:
            seen, names = Seen(40), Counter[str]()

            def handler(name: str) -> Callable[[ConsumerRecord], Awaitable[None]]:
                async def handle(record: ConsumerRecord) -> None:
                    names[name] += 1
                    await asyncio.sleep(0)
                    await seen(record)

                return handle

            both = [
                consumer_at(broker, handler(name), mode="queue", concurrency=1) for name in "ab"
            ]
            async with asyncio.TaskGroup() as tasks:
                for one in both:
                    tasks.create_task(one.run())
                await until_subscribed(broker, 2)
                await publish(broker, 40)
                await seen.is_enough.wait()
                for one in both:
                    one.stop()
            assert Counter(seen.values) == Counter(b"%d" % number for number in range(40))
            assert set(names) == {"a", "b"}

    asyncio.run(test())


def test_a_failed_record_of_a_queue_is_released_and_comes_again() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            attempts: list[int] = []
            done = asyncio.Event()

            async def fail_once(record: ConsumerRecord) -> None:
                attempts.append(record.attempt)
                if record.attempt == 1:
                    raise ValueError("once")
                done.set()

            one = consumer_at(broker, fail_once, mode="queue", retry=FAST)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(one.run())
                await until_subscribed(broker)
                await publish(broker, 1)
                await done.wait()
                one.stop()
            assert attempts == [1, 2]

    asyncio.run(test())


@pytest.mark.parametrize("mode", ["fanout", "queue"])
def test_a_lost_connection_is_opened_again(mode: str) -> None:
    async def test() -> None:
        async with push_broker() as broker:
            seen = Seen(1)
            one = consumer_at(broker, seen, mode=mode)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(one.run())
                if mode == "queue":
                    await until_subscribed(broker)
                await publish(broker, 1)
                await seen.is_enough.wait()
                assert broker._push is not None
                for connection in tuple(broker._push.server.connections):
                    if connection.address == "127.0.0.1":
                        connection.abort()
                seen.wanted = 2
                seen.is_enough.clear()
                await publish(broker, 1, first=1)
                await seen.is_enough.wait()
                one.stop()
            assert set(seen.values) == {b"0", b"1"}

    asyncio.run(test())


def test_errors_at_the_start() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            with pytest.raises(ConsumerError, match="missing"):
                await consumer_at(broker, Seen(1), topic="missing").run()
            with pytest.raises(ConsumerError, match="nowhere"):
                await consumer_at(broker, Seen(1), dead_letter="nowhere").run()
            one = consumer_at(broker, Seen(1), push_server="127.0.0.1:1")
            with pytest.raises(ConsumerError, match=r"127\.0\.0\.1:1"):
                await one.run()

    asyncio.run(test())


def test_settings_of_push() -> None:
    secured = push_address(
        "[::1]:9095",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "p",
        },
    )
    assert (secured.host, secured.port, str(secured)) == ("::1", 9095, "::1:9095")
    assert secured.tls is not None
    assert secured.credentials is not None
    assert push_address("host", {}).port == 9095
    for server, settings, words in (
        ("host:", {}, "address"),
        (":9095", {}, "address"),
        ("host:99999", {}, "address"),
        ("host", {"fetch.max.bytes": "1"}, "not possible"),
        ("host", {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}, "SCRAM"),
        ("host", {"security.protocol": "SASL_SSL"}, "missing"),
        ("host", {"security.protocol": "SSL", "ssl.ca.location": "missing.pem"}, "TLS files"),
    ):
        with pytest.raises(ConfigError, match=words):
            push_address(server, settings)
    with pytest.raises(ConfigError, match="transport"):
        consumer(topic="t", group="g", transport="x")  # type: ignore[arg-type]


def test_acknowledgements_never_pass_a_record_that_is_not_done() -> None:
    order: DeliveredOrder[int] = DeliveredOrder()
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    deliveries = [(0, 5), (1, 9), (0, 6), (1, 10)]
    for message_id, (partition, offset) in enumerate(deliveries, 1):
        order.add(TopicPartition("t", partition), offset, message_id)
    assert order.advance({second: 11}) is None
    assert order.advance({first: 6}) == 2
    assert order.advance({first: 7}) == 4
    assert not len(order)


def test_the_environment_selects_push(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with push_broker() as broker:
            monkeypatch.setenv("PENSTOCK_PUSH_SERVER", f"127.0.0.1:{broker.push_port}")
            seen = Seen(1)
            one = consumer(topic="t", group="g")(seen)
            await publish(broker, 1)
            await run_until(one, seen.is_enough)
            assert seen.values == [b"0"]
            assert broker.push_port is not None
            async with await open_push("127.0.0.1", broker.push_port) as client:
                left = await client.subscribe("t", group="g")
                assert left.positions == {0: 1}

    asyncio.run(test())


def test_handlers_of_a_lost_session_are_cancelled() -> None:
    """A message id of the old session may name another record in the new one."""

    async def test() -> None:
        async with push_broker() as broker, asyncio.timeout(15):
            attempts: list[int] = []
            both, cancelled = asyncio.Event(), 0

            async def wait_once(record: ConsumerRecord) -> None:
                nonlocal cancelled
                attempts.append(record.attempt)
                if record.attempt > 1:
                    if attempts.count(2) == 2:
                        both.set()
                    return
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cancelled += 1
                    raise

            one = consumer_at(broker, wait_once, mode="queue", concurrency=2)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(one.run())
                await until_subscribed(broker)
                await publish(broker, 2)
                while len(attempts) < 2:  # noqa: ASYNC110 (has a deadline)
                    await asyncio.sleep(0.005)
                assert broker._push is not None
                for connection in tuple(broker._push.server.connections):
                    if connection.address == "127.0.0.1":
                        connection.abort()
                await both.wait()
                one.stop()
            assert (cancelled, attempts) == (2, [1, 1, 2, 2])

    asyncio.run(test())


@pytest.mark.parametrize("mode", ["fanout", "queue"])
def test_a_broker_that_is_away_for_a_while(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = 3

    async def open_later(*places: object, **options: object) -> object:
        nonlocal failures
        if failures:
            failures -= 1
            raise BrokerUnreachableError("away")
        return await open_push(*places, **options)  # type: ignore[arg-type]

    async def test() -> None:
        monkeypatch.setattr(push_transport, "PAUSE_SECONDS_MAX", 0.1)
        async with push_broker() as broker, asyncio.timeout(15):
            seen = Seen(1)
            one = consumer_at(broker, seen, mode=mode)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(one.run())
                if mode == "queue":
                    await until_subscribed(broker)
                await publish(broker, 1)
                await seen.is_enough.wait()
                monkeypatch.setattr(push_transport, "open_push", open_later)
                assert broker._push is not None
                for connection in tuple(broker._push.server.connections):
                    if connection.address == "127.0.0.1":
                        connection.abort()
                seen.wanted = 2
                seen.is_enough.clear()
                await publish(broker, 1, first=1)
                await seen.is_enough.wait()
                one.stop()
            assert (failures, set(seen.values)) == (0, {b"0", b"1"})

    asyncio.run(test())


def test_a_defect_ends_the_consumer_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: object) -> None:
        raise ValueError("a defect")

    async def test() -> None:
        monkeypatch.setattr(push_transport.PushTransport, "_deliver", fail)
        async with push_broker() as broker, asyncio.timeout(15):
            with pytest.raises(ConsumerError, match="a defect"):
                await consumer_at(broker, Seen(1)).run()

    asyncio.run(test())
