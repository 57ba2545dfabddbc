"""`PushTransport`: records of one consumer by push; `consumers.ports.Transport`.

- Fanout: the group remembers positions, and has no members: one process of a group gets all
  records. Positions are acknowledged in the order of deliveries (`push_progress`).
- Queue: each subscriber is a member of a share group. Locks of records that are held are renewed,
  so a slow handler keeps its record.

Guarantees: records in memory are bounded by credit; a lost connection is opened again with growing
pauses, and records that were not acknowledged come again; an error that a new connection cannot
mend ends the consumer. It decides nothing about records: `delivery` does.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping
from typing import Final

from penstock.client.push import (
    PushClient,
    PushClosedError,
    PushRecord,
    PushRequestError,
    PushSubscription,
    open_push,
)
from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.delivery.dead_letters import OutgoingRecord
from penstock.consumers.delivery.deliveries import Acknowledgement, Progress
from penstock.consumers.errors import ConsumerError, RecordWriteError
from penstock.consumers.options import ConsumerOptions, Mode
from penstock.consumers.ports import DeliveryEvents
from penstock.consumers.push.push_progress import DeliveredOrder
from penstock.consumers.push.push_settings import PushAddress, push_address
from penstock.core.errors import BrokerUnreachableError, PenstockError
from penstock.core.types import TopicPartition

RECORDS_AT_ONCE_MAX: Final = 500
QUEUE_CREDIT_MAX: Final = 1_000
PAUSE_SECONDS_MIN: Final = 0.1
PAUSE_SECONDS_MAX: Final = 10.0
FIRST_SECONDS_MAX: Final = 30.0
"""How long `open` waits for a broker that cannot be reached."""
_log = logging.getLogger("penstock.consumers")


class PushTransport:
    """The push session of one consumer, and the ones that replace it."""

    def __init__(
        self, options: ConsumerOptions, push_server: str, settings: Mapping[str, str]
    ) -> None:
        self._options = options
        self._address: PushAddress = push_address(push_server, settings)
        self._client: PushClient | None = None
        self._subscriptions: dict[str, PushSubscription] = {}
        self._orders: dict[str, DeliveredOrder[PushRecord]] = {}
        self._held: dict[tuple[TopicPartition, int], PushRecord] = {}
        """Queue: records whose lock this consumer has."""
        self._assigned: set[TopicPartition] = set()
        self._is_closing = False
        self._task: asyncio.Task[None] | None = None

    @property
    def _is_queue(self) -> bool:
        return self._options.mode is Mode.QUEUE

    async def open(self, events: DeliveryEvents) -> None:
        """Connect and subscribe; raise `ConsumerError` if that is impossible."""
        self._events = events
        try:
            async with asyncio.timeout(FIRST_SECONDS_MAX):
                await self._connect()
        except (PenstockError, TimeoutError) as error:
            raise self._error(error) from error
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _error(self, error: BaseException) -> ConsumerError:
        options = self._options
        return ConsumerError(
            f"the consumer of {options.topic!r} in group {options.group!r} cannot use push at "
            f"{self._address}: {str(error) or type(error).__name__}",
            hint="Check edge.push_port of the broker, the topics and the access rules.",
        )

    # --- Called on the event loop ---

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing to do: credit bounds the records in memory."""

    def commit(self, progress: Progress) -> None:
        """Acknowledge, without waiting."""
        for topic, order in self._orders.items():
            newest = order.advance(progress.positions)
            if newest is not None:
                self._subscriptions[topic].acknowledge(newest)
        for at, offset, outcome in progress.settled:
            record = self._held.pop((at, offset), None)
            queue = self._subscriptions.get(at.topic)
            if record is None or queue is None:
                continue  # its lock is gone: the broker delivers it again
            if outcome is Acknowledgement.ACCEPT:
                queue.acknowledge(record)
            elif outcome is Acknowledgement.RELEASE:
                queue.release(record)
            else:
                queue.reject(record)

    async def write(self, record: OutgoingRecord) -> None:
        """Write a record to another topic."""
        client = self._client
        try:
            if client is None:
                raise RecordWriteError(f"{self._address} is not connected.")
            await client.publish(record.topic, record.value, key=record.key, headers=record.headers)
        except (PushRequestError, PushClosedError, BrokerUnreachableError) as error:
            raise RecordWriteError(
                f"a record for {record.topic!r} was not written: {error}."
            ) from error

    async def close(self, progress: Progress) -> None:
        """Acknowledge the last progress, and end the session in order."""
        self.commit(progress)
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._leave()

    # --- Sessions ---

    async def _run(self) -> None:
        """Deliver until the consumer closes; a defect of ours ends it with the reason."""
        try:
            await self._keep_delivering()
        except Exception as error:  # noqa: BLE001 (reported to the consumer)
            _log.exception("%s: the push transport failed.", self._options.group)
            self._events.broken(self._error(error))

    async def _keep_delivering(self) -> None:
        """Deliver; connect again after a lost connection."""
        pause = PAUSE_SECONDS_MIN
        while not self._is_closing:
            try:
                if self._client is not None:  # else the last try to connect failed
                    await self._deliver()
            except PushClosedError as error:
                self._forget()
                _log.warning("%s: %s; connecting again.", self._options.group, error)
                pause = max(pause, (error.retry_after_ms or 0) / 1000)
            try:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (not a secret)
                await self._connect()
                pause = PAUSE_SECONDS_MIN
            except PenstockError as error:
                is_passing = isinstance(error, (BrokerUnreachableError, PushClosedError))
                if not is_passing and not getattr(error, "is_retriable", False):
                    self._events.broken(self._error(error))
                    return
                _log.warning("%s: %s; connecting again.", self._options.group, error)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _connect(self) -> None:
        await self._leave()
        address = self._address
        client = await open_push(
            address.host, address.port, tls=address.tls, credentials=address.credentials
        )
        try:
            for topic in (self._options.retry_topic, self._options.dead_letter):
                if topic is not None:
                    await client.open_topic(topic)
            await self._subscribe(client)
        except BaseException:
            await client.close()
            raise
        self._client = client
        self._events.assigned(self._assigned)

    async def _subscribe(self, client: PushClient) -> None:
        options = self._options
        if self._is_queue:
            credit = min(QUEUE_CREDIT_MAX, 2 * options.batch * options.concurrency)
            self._subscriptions[options.topic] = await client.subscribe(
                options.topic, group=options.group, mode="queue", credit=credit
            )
            return
        for topic in (options.topic, options.retry_topic):
            if topic is None:
                continue
            found = await client.subscribe(
                topic,
                group=options.group,
                mode="fanout",
                reset="latest" if options.start == "latest" else "earliest",
                credit=options.buffered_records_max,
            )
            if found.elsewhere:
                raise ConsumerError(
                    f"other brokers lead partitions of {topic!r}: push serves one broker.",
                    hint='Use transport="kafka" in a cluster.',
                )
            self._subscriptions[topic] = found
            self._orders[topic] = DeliveredOrder()
            self._assigned |= {TopicPartition(topic, one) for one in found.positions}

    async def _leave(self) -> None:
        client, self._client = self._client, None
        self._subscriptions, self._orders = {}, {}
        if client is not None:
            await client.close()

    def _forget(self) -> None:
        """Drop records of a session that is gone: they are delivered again."""
        lost = self._assigned | {at for at, _ in self._held}
        self._held.clear()
        self._subscriptions, self._orders, self._assigned = {}, {}, set()
        self._events.lost(lost)

    # --- Records ---

    async def _deliver(self) -> None:
        """Deliver until the session ends, with `PushClosedError`."""
        async with asyncio.TaskGroup() as tasks:
            readers = [tasks.create_task(self._read(one)) for one in self._subscriptions.values()]
            if self._is_queue:
                readers.append(tasks.create_task(self._renew()))
            assert self._client is not None
            error = await self._client.wait_closed()
            for one in readers:
                one.cancel()
        raise error.again()

    async def _read(self, subscription: PushSubscription) -> None:
        with contextlib.suppress(PushClosedError, StopAsyncIteration):
            while True:
                found = [await anext(subscription)]
                while len(found) < RECORDS_AT_ONCE_MAX:
                    more = subscription.next_nowait()
                    if more is None:
                        break
                    found.append(more)
                self._received(found)

    def _received(self, found: list[PushRecord]) -> None:
        for one in found:
            at = TopicPartition(one.topic, one.partition)
            if self._is_queue:
                self._held[at, one.offset] = one
            else:
                self._orders[one.topic].add(at, one.offset, one)
        self._events.received([_record(one) for one in found])

    async def _renew(self) -> None:
        """Renew the locks of held records, three times in the time of a lock."""
        queue = self._subscriptions[self._options.topic]
        while True:
            await asyncio.sleep(max(0.1, queue.lock_seconds / 3))
            for record in self._held.values():
                queue.renew(record)


def _record(one: PushRecord) -> ConsumerRecord:
    return ConsumerRecord(
        one.topic,
        one.partition,
        one.offset,
        one.timestamp_ms,
        one.key,
        one.value,
        one.headers,
        max(1, one.delivery_count),
    )
