"""`GroupTransport`: a member of a consumer group of any Kafka, by confluent-kafka.

One thread owns the client: it polls, runs the callbacks of rebalances, pauses and commits. The
event loop talks to it by a queue of commands. Guarantees:

- Polling never stops while handlers run, so slow handlers do not lose the membership.
- Records in memory are bounded: after records are handed over, partitions are paused at the limits
  before the next poll.
- A revoked partition is committed after its running handlers ended, or after a bounded time. A lost
  partition is never committed: another member has it.
- The group protocol is `consumer` (KIP-848). If the broker does not have it, the transport starts
  again with `classic` and cooperative rebalances.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from penstock.consumers.delivery.dead_letters import OutgoingRecord
from penstock.consumers.delivery.deliveries import Progress
from penstock.consumers.errors import ConsumerError
from penstock.consumers.kafka import kafka_options, library
from penstock.consumers.kafka.kafka_records import place_of, record_of
from penstock.consumers.kafka.record_writer import RecordWriter
from penstock.consumers.kafka.topic_setup import prepare_topics
from penstock.consumers.options import ConsumerOptions
from penstock.consumers.ports import DeliveryEvents
from penstock.core.types import TopicPartition

POLL_SECONDS: Final = 0.05
POLLED_RECORDS_MAX: Final = 500
ROOM_SECONDS: Final = 0.2
"""Wait for room before partitions are paused: a pause discards the fetched records."""
Result = TypeVar("Result")
_Command = Callable[[], None]


class GroupTransport:
    """One member of a consumer group."""

    def __init__(
        self, options: ConsumerOptions, bootstrap: str, settings: Mapping[str, str]
    ) -> None:
        self._options = options
        self._settings = kafka_options.group_settings(options, bootstrap, settings)
        self._is_protocol_chosen = "group.protocol" in settings
        self._admin_settings = kafka_options.admin_settings(bootstrap, settings)
        self._writer = RecordWriter(kafka_options.producer_settings(bootstrap, settings))
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._kafka = library.load()
        self._client: Any = None
        self._wanted_pauses: frozenset[TopicPartition] = frozenset()
        self._paused: set[TopicPartition] = set()
        self._owned: set[TopicPartition] = set()
        self._was_assigned = False
        self._is_closing = False

    async def open(self, events: DeliveryEvents) -> None:
        """Check the topics, join the group in a thread."""
        await asyncio.to_thread(prepare_topics, self._options, self._admin_settings)
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._join()
        threading.Thread(target=self._run, name="penstock-group", daemon=True).start()

    def _join(self) -> None:
        try:
            self._client = self._kafka.Consumer(self._settings | {"on_commit": self._on_commit})
        except self._kafka.KafkaException as error:
            raise ConsumerError(f"wrong settings of the consumer: {error}.") from error
        topics = [self._options.topic]
        if self._options.retry_topic is not None:
            topics.append(self._options.retry_topic)
        self._client.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    # --- Called on the event loop ---

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """Deliver nothing from these partitions."""

        def command() -> None:
            self._wanted_pauses = partitions

        self._commands.put(command)

    def commit(self, progress: Progress) -> None:
        """Commit positions, without waiting."""
        self._commands.put(lambda: self._commit_now(progress.positions, is_waiting=False))

    async def write(self, record: OutgoingRecord) -> None:
        """Write a record to another topic."""
        await self._writer.write(record)

    async def close(self, progress: Progress) -> None:
        """Commit, leave the group, end the threads."""

        def command() -> None:
            self._commit_now(progress.positions, is_waiting=True)
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
                    self._apply_pauses()
                    self._poll()
        except Exception as error:  # noqa: BLE001 (reported to the run)
            self._on_loop(self._events.broken, error)
            self._wait_for_close()
        finally:
            self._leave()
            self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _wait_for_close(self) -> None:
        while not self._is_closing:
            self._commands.get()()

    def _leave(self) -> None:
        try:
            self._client.close()
        except Exception as error:  # noqa: BLE001 (the group removes a silent member by itself)
            self._on_loop(self._events.commit_failed, {}, f"leaving the group: {error}")

    def _do_commands(self) -> None:
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            command()

    def _apply_pauses(self) -> None:
        """Pause and resume at the client, so that its state is the wanted one."""
        wanted = self._wanted_pauses & self._owned
        if wanted and wanted == self._owned and not wanted <= self._paused:
            self._wait_for_room()
            wanted = self._wanted_pauses & self._owned
        if added := wanted - self._paused:
            self._client.pause(self._places(added))
        if removed := (self._paused & self._owned) - wanted:
            self._client.resume(self._places(removed))
        self._paused = set(wanted)

    def _wait_for_room(self) -> None:
        try:
            self._commands.get(timeout=ROOM_SECONDS)()
        except queue.Empty:
            return
        self._do_commands()

    def _poll(self) -> None:
        messages = self._client.consume(num_messages=POLLED_RECORDS_MAX, timeout=POLL_SECONDS)
        records = [record_of(one) for one in messages if one.error() is None]
        errors = [one.error() for one in messages if one.error() is not None]
        if any(self._may_lack_protocol(error) for error in errors):
            self._join_again()
            return
        for error in errors:
            self._check(error)
        if records:
            # Its commands are in the queue when it returns; the order of commands is kept.
            self._in_loop(self._events.received, records)

    def _may_lack_protocol(self, error: Any) -> bool:  # noqa: ANN401 (a class of the library)
        """Whether the broker may not have the group protocol `consumer`.

        librdkafka reports this as a fatal error without its cause, before the first assignment.
        """
        return (
            self._is_fatal(error)
            and not self._was_assigned
            and not self._is_protocol_chosen
            and self._settings["group.protocol"] == "consumer"
        )

    def _is_fatal(self, error: Any) -> bool:  # noqa: ANN401 (a class of the library)
        return bool(error.fatal()) or error.code() == self._kafka.KafkaError._FATAL

    def _join_again(self) -> None:
        self._client.close()
        self._settings["group.protocol"] = "classic"
        self._settings.setdefault("partition.assignment.strategy", "cooperative-sticky")
        self._join()

    def _check(self, error: Any) -> None:  # noqa: ANN401 (a class of the library)
        """Raise if an error ends the consumer; others heal by themselves in librdkafka."""
        names = self._kafka.KafkaError
        ending = (
            names.TOPIC_AUTHORIZATION_FAILED,
            names.GROUP_AUTHORIZATION_FAILED,
            names.INVALID_GROUP_ID,
            names.FENCED_INSTANCE_ID,
        )
        if self._is_fatal(error) or error.code() in ending:
            raise ConsumerError(
                f"the consumer of {self._options.topic!r} in group {self._options.group!r} "
                f"cannot continue: {error.str()}.",
                hint="Check the access rules of the group and the topic, and that no other member "
                "has the same group.instance.id.",
            )

    # --- Callbacks of the client, in the thread ---

    def _on_assign(self, _: object, partitions: Sequence[Any]) -> None:
        places = [place_of(one) for one in partitions]
        self._was_assigned = True
        self._owned.update(places)
        self._in_loop(self._events.assigned, places)

    def _on_revoke(self, _: object, partitions: Sequence[Any]) -> None:
        places = [place_of(one) for one in partitions]
        positions = self._await_in_loop(self._events.revoked(places))
        self._commit_now(positions, is_waiting=True)
        self._disown(places)

    def _on_lost(self, _: object, partitions: Sequence[Any]) -> None:
        places = [place_of(one) for one in partitions]
        self._in_loop(self._events.lost, places)
        self._disown(places)

    def _disown(self, places: Sequence[TopicPartition]) -> None:
        self._owned.difference_update(places)
        self._paused.difference_update(places)

    def _on_commit(self, error: Any, partitions: Sequence[Any]) -> None:  # noqa: ANN401
        """Report positions that the broker did not accept."""
        failed = [one for one in partitions if error is not None or one.error is not None]
        if failed:
            reason = str(error if error is not None else failed[0].error)
            positions = {place_of(one): one.offset for one in failed}
            self._on_loop(self._events.commit_failed, positions, reason)

    def _commit_now(self, positions: Mapping[TopicPartition, int], *, is_waiting: bool) -> None:
        """Commit positions of partitions that this member owns now, and of no others."""
        owned = {at: offset for at, offset in positions.items() if at in self._owned}
        if not owned:
            return
        places = [
            self._kafka.TopicPartition(at.topic, at.partition, offset)
            for at, offset in owned.items()
        ]
        try:
            self._client.commit(offsets=places, asynchronous=not is_waiting)
        except self._kafka.KafkaException as error:
            self._on_loop(self._events.commit_failed, owned, str(error))

    # --- Between the thread and the loop ---

    def _places(self, partitions: set[TopicPartition] | frozenset[TopicPartition]) -> list[Any]:
        return [self._kafka.TopicPartition(at.topic, at.partition) for at in partitions]

    def _on_loop(self, call: Callable[..., object], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(call, *arguments)

    def _in_loop(self, call: Callable[..., Result], *arguments: object) -> Result:
        """Run a call on the loop and return its result."""

        async def run() -> Result:
            return call(*arguments)

        return self._await_in_loop(run())

    def _await_in_loop(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
