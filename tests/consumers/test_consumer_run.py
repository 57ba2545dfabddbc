"""A running consumer over a transport in memory: stop, revocation, writes, error handlers."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.delivery.deliveries import Acknowledgement
from penstock.consumers.errors import ConsumerError, ConsumerStoppedError, RecordWriteError
from penstock.consumers.handling import ErrorAction, Failure
from penstock.consumers.options import ConsumerOptions, Mode
from penstock.consumers.retry_policy import RetryPolicy
from penstock.consumers.running.consumer_run import ConsumerRun
from penstock.core.types import TopicPartition
from tests.consumers.memory_transport import MemoryTransport

AT = TopicPartition("t", 0)
SHORT = RetryPolicy(attempts=2, backoff="1ms")


def record(offset: int, attempt: int = 1) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 0, None, b"v%d" % offset, (), attempt)


Scene = Callable[[MemoryTransport, ConsumerRun], Awaitable[None]]


def run(
    handler: Callable[[Any], Any],
    scene: Scene,
    *,
    revoke_seconds_max: float = 5.0,
    stop_seconds_max: float = 5.0,
    **changes: object,
) -> MemoryTransport:
    """Run a consumer beside a scene, then stop it; return what it has sent."""

    async def main() -> MemoryTransport:
        transport = MemoryTransport()
        defaults: dict[str, object] = {"topic": "t", "group": "g", "retry": SHORT}
        consumer = ConsumerRun(
            ConsumerOptions(**(defaults | changes)),  # type: ignore[arg-type]
            handler,
            transport,
            revoke_seconds_max=revoke_seconds_max,
            stop_seconds_max=stop_seconds_max,
        )
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(consumer.run())
            await scene(transport, consumer)
            consumer.stop()
            await running
        assert transport.is_closed
        return transport

    try:
        return asyncio.run(main())
    except ExceptionGroup as group:
        error = group.exceptions[0]
        raise error from error.__cause__


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the other tasks have reached this state."""
    while not condition():  # noqa: ASYNC110 (the state is plain data of the code under test)
        await asyncio.sleep(0.001)


def raising(error: Exception) -> Callable[[Any], None]:
    def handler(_: object) -> None:
        raise error

    return handler


def test_a_stop_finishes_running_handlers_and_commits() -> None:
    begun, seen = asyncio.Event(), []

    async def handler(one: ConsumerRecord) -> None:
        begun.set()
        await asyncio.sleep(0.05)
        seen.append(one.offset)

    async def scene(transport: MemoryTransport, _: ConsumerRun) -> None:
        await transport.deliver(record(0), record(1), record(2))
        await begun.wait()

    transport = run(handler, scene, concurrency=2)
    assert seen == [0, 1]
    assert transport.positions == {AT: 2}


def test_a_handler_that_ignores_the_stop_is_cancelled_and_not_committed() -> None:
    begun = asyncio.Event()

    async def handler(one: ConsumerRecord) -> None:
        if one.offset == 1:
            begun.set()
            await asyncio.sleep(60)

    async def scene(transport: MemoryTransport, _: ConsumerRun) -> None:
        await transport.deliver(record(0), record(1))
        await begun.wait()

    transport = run(handler, scene, stop_seconds_max=0.02)
    assert transport.positions == {AT: 1}


def test_a_revocation_waits_for_running_handlers() -> None:
    begun = asyncio.Event()

    async def handler(_: ConsumerRecord) -> None:
        begun.set()
        await asyncio.sleep(0.02)

    async def scene(transport: MemoryTransport, _: ConsumerRun) -> None:
        await transport.deliver(record(0), record(1))
        await begun.wait()
        assert await transport.revoke([AT]) == {AT: 1}

    transport = run(handler, scene, concurrency=1)
    assert transport.positions == {}  # the transport commits what a revocation returned


def test_a_revocation_does_not_wait_for_ever() -> None:
    begun, ends = asyncio.Event(), []

    async def handler(one: ConsumerRecord) -> None:
        if one.offset == 1:
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                ends.append(one.offset)

    async def scene(transport: MemoryTransport, _: ConsumerRun) -> None:
        await transport.deliver(record(0), record(1))
        await begun.wait()
        assert await transport.revoke([AT]) == {AT: 1}
        # The partition is back: the record is handled again, by a call of its own.
        begun.clear()
        await transport.deliver(record(1))
        await begun.wait()
        transport.events.lost([AT])

    transport = run(handler, scene, revoke_seconds_max=0.02)
    assert ends == [1, 1]
    assert transport.positions == {}


def test_nothing_of_a_lost_partition_is_committed() -> None:
    gate = threading.Event()

    def handler(_: ConsumerRecord) -> None:
        gate.wait()

    async def scene(transport: MemoryTransport, _: ConsumerRun) -> None:
        await transport.deliver(record(0))
        await asyncio.sleep(0.01)
        transport.events.lost([AT])
        gate.set()

    assert run(handler, scene).positions == {}


def test_a_failed_record_is_retried_then_put_aside() -> None:
    seen = []

    def handler(one: ConsumerRecord) -> None:
        seen.append((one.offset, one.attempt))
        if one.offset == 1:
            raise ValueError("bad")

    async def scene(transport: MemoryTransport, _: ConsumerRun) -> None:
        await transport.deliver(record(0), record(1), record(2))
        while not transport.written:
            transport.changed.clear()
            await transport.changed.wait()

    transport = run(handler, scene, dead_letter="dlq.t")
    assert sorted(seen) == [(0, 1), (1, 1), (1, 2), (2, 1)]
    (letter,) = transport.written
    assert (letter.topic, letter.value) == ("dlq.t", b"v1")
    assert transport.positions == {AT: 3}


def test_without_a_dead_letter_topic_the_consumer_stops_at_the_record() -> None:
    async def scene(transport: MemoryTransport, consumer: ConsumerRun) -> None:
        await transport.deliver(record(7))
        await until(lambda: bool(consumer.work.is_stopping))

    with pytest.raises(ConsumerStoppedError, match="stopped at t-0 at offset 7") as raised:
        run(raising(ValueError("bad")), scene)
    assert "dead_letter" in raised.value.hint
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_dead_letter_that_cannot_be_written_stops_the_consumer_before_the_record() -> None:
    seen: list[MemoryTransport] = []

    async def scene(transport: MemoryTransport, consumer: ConsumerRun) -> None:
        seen.append(transport)
        transport.can_write = False
        await transport.deliver(record(0))
        await until(lambda: bool(transport.is_closed))

    with pytest.raises(RecordWriteError):
        run(raising(ValueError("bad")), scene, dead_letter="dlq.t")
    assert seen[0].positions in ({}, {AT: 0})


@pytest.mark.parametrize("is_async", [True, False])
def test_the_error_handler_chooses(is_async: bool) -> None:
    failures: list[Failure] = []

    def choose(failure: Failure) -> ErrorAction | None:
        failures.append(failure)
        return ErrorAction.SKIP

    async def choose_async(failure: Failure) -> ErrorAction | None:
        return choose(failure)

    async def scene(transport: MemoryTransport, _: ConsumerRun) -> None:
        await transport.deliver(record(0))
        await until(lambda: bool(failures))

    transport = run(
        raising(ValueError("bad")), scene, on_error=choose_async if is_async else choose
    )
    assert transport.positions == {AT: 1}
    assert (failures[0].record.offset, failures[0].attempt, failures[0].is_last) == (0, 1, False)


@pytest.mark.parametrize("answer", [RuntimeError("broken"), "skip", 5])
def test_a_broken_error_handler_follows_the_policy(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Failure) -> Any:  # noqa: ANN401
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scene(transport: MemoryTransport, _: ConsumerRun) -> None:
        await transport.deliver(record(0))
        await until(lambda: bool(transport.written))

    transport = run(raising(ValueError("bad")), scene, on_error=broken, dead_letter="dlq.t")
    assert transport.positions == {AT: 1}
    assert "the error handler" in caplog.text


def test_a_record_that_never_ends_becomes_a_dead_letter() -> None:
    async def handler(_: ConsumerRecord) -> None:
        await asyncio.sleep(60)

    async def scene(transport: MemoryTransport, _: ConsumerRun) -> None:
        await transport.deliver(record(0), record(1))
        await until(lambda: len(transport.written) == 2)

    transport = run(handler, scene, dead_letter="dlq.t", timeout_seconds=0.01)
    assert transport.positions == {AT: 2}
    headers = dict(transport.written[0].headers)
    assert headers["penstock.error.text"] == b"the handler did not return within 0.01 s"


def test_a_queue_is_acknowledged_and_the_rest_is_released_at_the_stop() -> None:
    seen = []

    async def handler(one: ConsumerRecord) -> None:
        seen.append(one.offset)
        await asyncio.sleep(60 if one.offset else 0)

    async def scene(transport: MemoryTransport, _: ConsumerRun) -> None:
        await transport.deliver(record(0), record(1), record(2))
        await until(lambda: seen == [0, 1])

    transport = run(handler, scene, mode=Mode.QUEUE, concurrency=1, stop_seconds_max=0.02)
    assert {one.offset: one.acknowledgement for one in transport.settled} == {
        0: Acknowledgement.ACCEPT,
        1: Acknowledgement.RELEASE,
        2: Acknowledgement.RELEASE,
    }


def test_the_error_of_a_transport_ends_the_run() -> None:
    async def scene(transport: MemoryTransport, _: ConsumerRun) -> None:
        await transport.opened.wait()
        transport.events.broken(ConsumerError("gone"))

    with pytest.raises(ConsumerError, match="gone"):
        run(raising(ValueError()), scene)


def test_partitions_are_paused_and_resumed() -> None:
    gate, seen = asyncio.Event(), []

    async def handler(one: ConsumerRecord) -> None:
        await gate.wait()
        seen.append(one.offset)

    async def scene(transport: MemoryTransport, consumer: ConsumerRun) -> None:
        limit = consumer.work.options.buffered_records_max
        await transport.deliver(*map(record, range(limit)))
        assert transport.paused == {AT}  # before another record can come
        gate.set()
        await until(lambda: not transport.paused)
        await until(lambda: seen == list(range(limit)))

    assert run(handler, scene).positions == {AT: 1_000}
