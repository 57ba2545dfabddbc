"""Tests of consumers: `deliver` without a broker, `running_consumer` with a test broker.

    def test_a_broken_order_is_a_dead_letter():
        result = deliver(bill, '{"id": 1}', "broken")
        assert [one.record.text() for one in result.dead_letters] == ["broken"]

`deliver` runs the handler with the retries, dead letters and error handler of its decorator, one
call after another. Pauses cost no time: the clock is the test's. `running_consumer` runs the whole
consumer against a broker, in a thread with its own loop; it needs the extra `consumer`.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from penstock.client.calls import LATEST_TIMESTAMP
from penstock.client.groups.groups import Groups
from penstock.client.opening import open_cluster
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.options import ClientOptions
from penstock.consumers.application import Consumer
from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.delivery.dead_letters import OutgoingRecord, outgoing
from penstock.consumers.delivery.deliveries import Call, Progress
from penstock.consumers.delivery.failure_verdicts import Verdict, VerdictKind
from penstock.consumers.delivery.work import Work
from penstock.consumers.errors import ConsumerStoppedError
from penstock.consumers.handling import Failure
from penstock.consumers.options import Mode
from penstock.consumers.running.invocation import Invoker
from penstock.core.types import TopicPartition
from penstock.testing.broker import Broker
from penstock.testing.limits import ARRIVAL_SECONDS_MAX

Delivered = ConsumerRecord | str | bytes | None
"""A record, or only its value; text becomes UTF-8."""
_START_SECONDS = 1_000.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """A record that was put aside, with the error of its last attempt."""

    record: ConsumerRecord
    error: Exception
    topic: str


@dataclass(slots=True)
class Delivery:
    """The outcome of `deliver`."""

    handled: list[ConsumerRecord] = field(default_factory=list)
    """Records whose handler returned."""
    dead_letters: list[DeadLettered] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    """Every failed call, in order."""
    pauses_seconds: list[float] = field(default_factory=list)
    """The pauses before retries, with jitter at its largest."""
    progress: Progress = field(default_factory=lambda: Progress({}, ()))
    """Positions (fanout) or acknowledgements (queue) at the end."""
    error: ConsumerStoppedError | None = None
    """The error of a record that would have stopped the consumer."""


def deliver(consumer: Consumer, *records: Delivered) -> Delivery:
    """Deliver records to a consumer without a broker; in async tests use `deliver_async`."""
    return asyncio.run(deliver_async(consumer, *records))


async def deliver_async(consumer: Consumer, *records: Delivered) -> Delivery:
    """Deliver records to a consumer without a broker."""
    run = _DeliveryRun(consumer)
    try:
        await run.deliver(_numbered(consumer.options.topic, records))
    finally:
        run.invoker.close()
    return run.done


class _DeliveryRun:
    """Drives the decisions of a consumer with a clock that jumps."""

    def __init__(self, consumer: Consumer) -> None:
        options = consumer.options
        self._consumer = consumer
        self._options = options
        self._work = Work(options)
        self._now_seconds = _START_SECONDS
        self._retry_offset = 0
        self.done = Delivery()
        self.invoker = Invoker(
            concurrency=options.concurrency,
            timeout_seconds=options.timeout_seconds,
            name="penstock-testing",
        )

    async def deliver(self, records: Sequence[ConsumerRecord]) -> None:
        self._work.assign({record.at for record in records})
        if self._options.retry_topic is not None:
            self._work.assign([TopicPartition(self._options.retry_topic, 0)])
        self._receive(records)
        while True:
            calls = self._work.start(self._now_seconds)
            for call in calls:
                if self._work.is_stopping:
                    self._work.abandon(call)
                else:
                    await self._call(call)
            due_seconds = self._work.next_due_seconds()
            if self._work.is_stopping or (not calls and due_seconds is None):
                break
            if not calls and due_seconds is not None:
                self._now_seconds = due_seconds
        self.done.progress = self._work.progress()

    def _receive(self, records: Sequence[ConsumerRecord]) -> None:
        self._work.receive(records, self._now_seconds, self._now_ms)

    @property
    def _now_ms(self) -> int:
        return round(self._now_seconds * 1_000)

    async def _call(self, call: Call) -> None:
        records = call.records
        argument = records[0] if self._options.batch == 1 else list(records)
        try:
            await self.invoker.call(self._consumer.handler, argument)
        except Exception as error:  # noqa: BLE001 (any error of the handler)
            await self._failed(call, error)
        else:
            self._work.succeed(call, self._now_seconds)
            self.done.handled += records

    async def _failed(self, call: Call, error: Exception) -> None:
        failure = Failure(call.records, error, call.attempt, self._options.retry.attempts)
        self.done.failures.append(failure)
        on_error = self._options.on_error
        action = None if on_error is None else await self.invoker.call(on_error, failure)
        verdict = self._work.fail(call, action, 1.0, self._now_seconds)
        assert verdict is not None
        if verdict.pause_seconds:
            self.done.pauses_seconds.append(verdict.pause_seconds)
        if verdict.kind is VerdictKind.STOP:
            self.done.error = ConsumerStoppedError(f"{failure.record}: {error}")
            self.done.error.__cause__ = error
        elif verdict.kind in (VerdictKind.RETRY_TOPIC, VerdictKind.DEAD_LETTER):
            self._write(call, verdict, error)

    def _write(self, call: Call, verdict: Verdict, error: Exception) -> None:
        for entry in call.entries:
            if verdict.kind is VerdictKind.DEAD_LETTER:
                assert self._options.dead_letter is not None
                letter = DeadLettered(entry.record, error, self._options.dead_letter)
                self.done.dead_letters.append(letter)
            else:
                assert self._options.retry_topic is not None
                written = outgoing(
                    self._options.retry_topic,
                    entry.record,
                    group=self._options.group,
                    error=error,
                    now_ms=self._now_ms,
                    due_ms=round((self._now_seconds + verdict.pause_seconds) * 1_000),
                )
                self._receive([self._stored(written)])
            self._work.written(entry, self._now_seconds)

    def _stored(self, record: OutgoingRecord) -> ConsumerRecord:
        self._retry_offset += 1
        return ConsumerRecord(
            record.topic,
            0,
            self._retry_offset - 1,
            self._now_ms,
            record.key,
            record.value,
            record.headers,
        )


def _numbered(topic: str, records: Sequence[Delivered]) -> list[ConsumerRecord]:
    """Return records of the topic; values get offsets from 0 in partition 0."""
    found = []
    for offset, one in enumerate(records):
        if isinstance(one, ConsumerRecord):
            found.append(replace(one, topic=topic))
        else:
            value = one.encode() if isinstance(one, str) else one
            found.append(ConsumerRecord(topic, 0, offset, 0, None, value))
    return found


class RunningConsumer:
    """A consumer in a thread."""

    def __init__(self, consumer: Consumer, broker: Broker) -> None:
        self._consumer = consumer
        self._bootstrap = broker.bootstrap_server
        self._loop = asyncio.new_event_loop()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._consumer.run(bootstrap_server=self._bootstrap))
        except BaseException as error:  # noqa: BLE001 (raised by `stop`)
            self._error = error
        finally:
            self._loop.close()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop in order; raise the error of the consumer."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the consumer has ended
            self._loop.call_soon_threadsafe(self._consumer.stop)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def until_done(self, timeout_seconds: float = ARRIVAL_SECONDS_MAX) -> None:
        """Wait until the group has committed all records of the topic; fanout mode only."""
        options = self._consumer.options
        assert options.mode is Mode.FANOUT, "a share group has no positions"
        deadline = time.monotonic() + timeout_seconds
        client = ClientOptions(parse_addresses(self._bootstrap), client_id="penstock-testing")
        with open_cluster(client) as cluster:
            while True:
                places = cluster.partitions_of(options.topic)
                ends = cluster.find_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
                committed = Groups(cluster).committed(options.group)
                behind = {
                    at: end
                    for at, end in ends.items()
                    if end > 0 and (at not in committed or committed[at].offset < end)
                }
                if not behind:
                    return
                if time.monotonic() > deadline or not self._thread.is_alive():
                    names = ", ".join(sorted(map(str, behind)))
                    raise AssertionError(
                        f"group {options.group!r} is not done with {names} "
                        f"after {timeout_seconds:g} s"
                    ) from self._error
                time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def running_consumer(consumer: Consumer, broker: Broker) -> Iterator[RunningConsumer]:
    """Run a consumer against a test broker for a block; raise its error at the end."""
    run = RunningConsumer(consumer, broker)
    run.start()
    try:
        yield run
    finally:
        run.stop()
