"""`ShareTransport`: a member of a share group (KIP-932), by confluent-kafka's ShareConsumer.

One thread owns the client. It polls, hands the records over, sends acknowledgements as they come,
and polls again when all records of the poll are acknowledged; the client demands that. So a member
holds the locks of one poll at most, and a slow record delays only its own member.

An acknowledgement that comes after the lock has expired is refused by the broker and logged; the
record was or will be delivered again. Locks are not renewed: the client cannot do it yet, so the
timeout of a handler should be below the lock duration of the group (30 s by default).
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.consumers.delivery.dead_letters import OutgoingRecord
from penstock.consumers.delivery.deliveries import Progress, Settled
from penstock.consumers.errors import ConsumerError
from penstock.consumers.kafka import kafka_options, library
from penstock.consumers.kafka.kafka_records import record_of
from penstock.consumers.kafka.record_writer import RecordWriter
from penstock.consumers.kafka.topic_setup import prepare_topics
from penstock.consumers.options import ConsumerOptions
from penstock.consumers.ports import DeliveryEvents
from penstock.core.types import TopicPartition

POLL_SECONDS: Final = 0.2
COMMIT_TIMEOUT_SECONDS: Final = 10.0
_log = logging.getLogger("penstock.consumers")


class ShareTransport:
    """One member of a share group."""

    def __init__(
        self, options: ConsumerOptions, bootstrap: str, settings: Mapping[str, str]
    ) -> None:
        self._options = options
        self._settings = kafka_options.share_settings(options, bootstrap, settings)
        self._admin_settings = kafka_options.admin_settings(bootstrap, settings)
        self._writer = RecordWriter(kafka_options.producer_settings(bootstrap, settings))
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._kafka = library.load()
        self._new_client = library.load_share_consumer()
        self._client: Any = None
        self._held: set[tuple[TopicPartition, int]] = set()
        self._settled: list[Settled] = []
        self._is_closing = False

    async def open(self, events: DeliveryEvents) -> None:
        """Check the topics, join the group in a thread."""
        await asyncio.to_thread(prepare_topics, self._options, self._admin_settings)
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        try:
            self._client = self._new_client(self._settings)
        except self._kafka.KafkaException as error:
            raise ConsumerError(f"wrong settings of the consumer: {error}.") from error
        self._client.subscribe([self._options.topic])
        threading.Thread(target=self._run, name="penstock-share", daemon=True).start()

    # --- Called on the event loop ---

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing to do: the next poll waits until this one is settled."""

    def commit(self, progress: Progress) -> None:
        """Send acknowledgements, without waiting."""
        self._commands.put(lambda: self._settled.extend(progress.settled))

    async def write(self, record: OutgoingRecord) -> None:
        """Write a record to another topic."""
        await self._writer.write(record)

    async def close(self, progress: Progress) -> None:
        """Send the last acknowledgements, leave the group, end the threads."""

        def command() -> None:
            self._settled.extend(progress.settled)
            self._is_closing = True

        self._commands.put(command)
        await self._ended
        await asyncio.to_thread(self._writer.close)

    # --- The thread ---

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._do_commands()
                if not self._is_closing:
                    self._poll()
        except Exception as error:  # noqa: BLE001 (reported to the run)
            self._loop.call_soon_threadsafe(self._events.broken, error)
            while not self._is_closing:
                self._commands.get()()
        finally:
            self._leave()
            self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _do_commands(self) -> None:
        """Do the waiting commands; while records are held, wait for their acknowledgements."""
        while True:
            self._do_waiting_commands()
            settled, self._settled = self._settled, []
            self._acknowledge(settled)
            if self._is_closing or not self._held:
                return
            self._commands.get()()

    def _do_waiting_commands(self) -> None:
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            command()

    def _poll(self) -> None:
        records = []
        for message in self._client.poll(POLL_SECONDS):
            error = message.error()
            if error is None:
                records.append(record_of(message))
            elif error.fatal() or error.code() in self._ending_codes():
                raise ConsumerError(
                    f"the consumer of {self._options.topic!r} in share group "
                    f"{self._options.group!r} cannot continue: {error.str()}.",
                    hint="Check the access rules, and that the broker has share groups "
                    "(Penstock, or Apache Kafka 4.2 or later).",
                )
            else:
                _log.warning("%s: %s", self._options.group, error.str())
        if records:
            self._held = {(record.at, record.offset) for record in records}
            self._loop.call_soon_threadsafe(self._events.received, records)

    def _ending_codes(self) -> tuple[int, ...]:
        names = self._kafka.KafkaError
        return (
            names.TOPIC_AUTHORIZATION_FAILED,
            names.GROUP_AUTHORIZATION_FAILED,
            names.INVALID_GROUP_ID,
            names.UNSUPPORTED_VERSION,
            names._FATAL,
            names._UNSUPPORTED_FEATURE,
        )

    def _acknowledge(self, settled: Sequence[Settled]) -> None:
        """Send acknowledgements, in the order of offsets, one request after another.

        With several requests in flight, brokers refuse those of confluent-kafka 2.16.
        """
        kinds = self._kafka.AcknowledgeType
        held = [one for one in settled if (one.at, one.offset) in self._held]
        for one in sorted(held, key=lambda one: (one.at, one.offset)):
            self._held.remove((one.at, one.offset))
            kind = kinds(one.acknowledgement.value)
            self._client.acknowledge_offset(one.at.topic, one.at.partition, one.offset, kind)
        if held:
            self._commit()

    def _commit(self) -> None:
        """Wait until the broker has answered; refused records are delivered again."""
        try:
            outcomes = self._client.commit_sync(COMMIT_TIMEOUT_SECONDS)
        except self._kafka.KafkaException as error:
            _log.warning("%s: acknowledgements: %s.", self._options.group, error)
            return
        for place, refusal in outcomes.items():
            if refusal is not None:
                _log.warning(
                    "%s: acknowledgements for %s-%d were refused: %s.",
                    self._options.group, place.topic, place.partition, refusal,
                )  # fmt: skip

    def _leave(self) -> None:
        """Leave the group; the broker releases records without an acknowledgement."""
        try:
            self._client.close()
        except Exception as error:  # noqa: BLE001 (the group removes a silent member by itself)
            _log.warning("%s: leaving the group: %s.", self._options.group, error)
