"""`ConsumerRun`: one consumer on an event loop, between its transport and its handler.

All decisions are those of `delivery.work`; this file calls handlers, waits and writes. A run ends
when `stop` is called (running handlers finish, progress is committed, the member leaves the group),
or with an error: of the transport, of a record that stops the consumer, or of a dead letter that
could not be written. In each case the records that are not done are delivered again later.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.delivery.dead_letters import outgoing
from penstock.consumers.delivery.deliveries import Call
from penstock.consumers.delivery.failure_verdicts import Verdict, VerdictKind
from penstock.consumers.delivery.partition_work import Entry
from penstock.consumers.delivery.work import Work
from penstock.consumers.errors import ConsumerError, ConsumerStoppedError, RecordWriteError
from penstock.consumers.handling import ErrorAction, Failure
from penstock.consumers.limits import COMMIT_SECONDS, REVOKE_SECONDS_MAX, STOP_SECONDS_MAX
from penstock.consumers.options import ConsumerOptions, Mode
from penstock.consumers.ports import Transport
from penstock.consumers.running.invocation import Invoker
from penstock.core.types import TopicPartition

_log = logging.getLogger("penstock.consumers")


class ConsumerRun:
    """One run of a consumer; it is not used again after its end."""

    def __init__(
        self,
        options: ConsumerOptions,
        handler: Callable[[Any], Any],
        transport: Transport,
        *,
        draw: Callable[[], float] = random.random,
        stop_seconds_max: float = STOP_SECONDS_MAX,
        revoke_seconds_max: float = REVOKE_SECONDS_MAX,
    ) -> None:
        self._options = options
        self._handler = handler
        self._transport = transport
        self._draw = draw
        self._stop_seconds_max = stop_seconds_max
        self._revoke_seconds_max = revoke_seconds_max
        self.work = Work(options)
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_stop_asked = False
        self._error: Exception | None = None
        self._running: dict[Call, asyncio.Task[None]] = {}
        self._tasks = asyncio.TaskGroup()
        self._paused: frozenset[TopicPartition] = frozenset()
        self._commit_at_seconds = 0.0
        self._invoker = Invoker(
            concurrency=options.concurrency,
            timeout_seconds=options.timeout_seconds,
            name=f"penstock-{options.group}",
        )

    async def run(self) -> None:
        """Deliver records until `stop` is called; raise the error that ended the run."""
        await self._transport.open(self)
        try:
            async with self._tasks:
                try:
                    await self._deliver()
                finally:
                    await self._drain()
        finally:
            self._invoker.close()
            await self._transport.close(self.work.progress(is_last=True))
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Begin to end the run; call it on the event loop."""
        self._is_stop_asked = True
        self._wake.set()

    async def _deliver(self) -> None:
        self._commit_at_seconds = time.monotonic() + COMMIT_SECONDS
        while not self._is_stop_asked and self._error is None:
            self._wake.clear()
            self._start_calls()
            self._commit()
            self._pause()
            due_seconds = self.work.next_due_seconds()
            until = (
                self._commit_at_seconds
                if due_seconds is None
                else (min(due_seconds, self._commit_at_seconds))
            )
            await _wait(self._wake, until)

    async def _drain(self) -> None:
        """Finish running calls within the limit of a stop, then cancel the rest."""
        self.work.stop()
        self._pause()
        until = time.monotonic() + self._stop_seconds_max
        while not self.work.is_idle() and time.monotonic() < until:
            self._changed.clear()
            self._commit()
            await _wait(self._changed, until)
        for call in list(self._running):
            _log.warning("%s: the handler of %s is cancelled.", self._name, call.records[0])
        self._cancel(self._running)

    # --- Events of the transport ---

    def received(self, records: Sequence[ConsumerRecord]) -> None:
        """Add records, and pause partitions at the limits."""
        self.work.receive(records, time.monotonic(), time.time_ns() // 1_000_000)
        self._pause()
        self._wake.set()

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Begin with partitions."""
        self.work.assign(partitions)
        self._wake.set()
        _log.info("%s: assigned %s.", self._name, _listed(partitions))

    async def revoked(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Finish running calls in bounded time; return the positions to commit."""
        self.work.revoke(partitions)
        until = time.monotonic() + self._revoke_seconds_max
        while self.work.is_active(partitions) and time.monotonic() < until:
            self._changed.clear()
            await _wait(self._changed, until)
        positions = self.work.forget(partitions)
        self._cancel(call for call in self._running if call.is_gone)
        _log.info("%s: revoked %s.", self._name, _listed(partitions))
        return positions

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions without a commit."""
        self.work.forget(partitions)
        self._cancel(call for call in self._running if call.is_gone)
        _log.warning("%s: lost %s; records are repeated.", self._name, _listed(partitions))

    def commit_failed(self, positions: Mapping[TopicPartition, int], reason: str) -> None:
        """Commit these positions again with the next progress."""
        self.work.uncommitted(positions)
        _log.warning("%s: a commit failed: %s.", self._name, reason)

    def broken(self, error: Exception) -> None:
        """End the run with this error, unless there is an earlier one."""
        self._error = self._error or error
        self._wake.set()
        self._changed.set()

    # --- Calls ---

    def _start_calls(self) -> None:
        for call in self.work.start(time.monotonic()):
            self._running[call] = self._tasks.create_task(self._call(call))

    async def _call(self, call: Call) -> None:
        records = call.records
        try:
            await self._invoker.call(
                self._handler, records[0] if self._options.batch == 1 else list(records)
            )
        except asyncio.CancelledError:
            self.work.abandon(call)
            raise
        except ConsumerError as error:  # the consumer itself cannot continue
            self.work.abandon(call)
            self.broken(error)
        except Exception as error:  # noqa: BLE001 (any error of the application)
            await self._failed(call, error)
        else:
            self.work.succeed(call, time.monotonic())
        finally:
            self._running.pop(call, None)
            self._wake.set()
            self._changed.set()

    async def _failed(self, call: Call, error: Exception) -> None:
        try:
            action = await self._action(call, error)
        except asyncio.CancelledError:
            self.work.abandon(call)
            raise
        attempt, record = call.attempt, call.records[0]
        verdict = self.work.fail(call, action, self._draw(), time.monotonic())
        if verdict is None:
            return
        _log.warning(
            "%s: attempt %d of %d failed for %s: %s: %s. Next: %s.",
            self._name, attempt, self._options.retry.attempts, record,
            type(error).__name__, error, verdict.kind.value,
        )  # fmt: skip
        if verdict.kind is VerdictKind.STOP:
            self.broken(self._stopped(call, error))
        elif verdict.kind in (VerdictKind.RETRY_TOPIC, VerdictKind.DEAD_LETTER):
            await self._write(call.entries, verdict, error)

    async def _action(self, call: Call, error: Exception) -> ErrorAction | None:
        """Return the choice of the error handler; its own failure is logged and is no choice."""
        on_error = self._options.on_error
        if on_error is None:
            return None
        failure = Failure(call.records, error, call.attempt, self._options.retry.attempts)
        try:
            action = await self._invoker.call(on_error, failure)
        except Exception:  # noqa: BLE001 (any error of the application)
            _log.exception("%s: the error handler failed for %s.", self._name, failure.record)
            return None
        if action is None or isinstance(action, ErrorAction):
            return action
        _log.error(
            "%s: the error handler returned %r instead of an ErrorAction or None.",
            self._name, action,
        )  # fmt: skip
        return None

    async def _write(self, entries: Sequence[Entry], verdict: Verdict, error: Exception) -> None:
        """Write the records to the retry topic or the dead-letter topic, then count them as done.

        A record that cannot be written is not done, and the consumer stops: nothing is lost.
        """
        is_retry = verdict.kind is VerdictKind.RETRY_TOPIC
        topic = self._options.retry_topic if is_retry else self._options.dead_letter
        assert topic is not None
        now_ms = time.time_ns() // 1_000_000
        due_ms = now_ms + round(verdict.pause_seconds * 1_000) if is_retry else None
        unwritten = list(entries)
        try:
            while unwritten:
                record = outgoing(
                    topic,
                    unwritten[0].record,
                    group=self._options.group,
                    error=error,
                    now_ms=now_ms,
                    due_ms=due_ms,
                )
                await self._transport.write(record)
                self.work.written(unwritten.pop(0), time.monotonic())
        except RecordWriteError as failure:
            self.broken(failure)
        finally:
            for entry in unwritten:
                self.work.not_written(entry)

    def _stopped(self, call: Call, error: Exception) -> ConsumerStoppedError:
        stopped = ConsumerStoppedError(
            f"consumer of {self._options.topic!r} in group {self._options.group!r} stopped at "
            f"{call.records[0]} after attempt {call.attempt}: {type(error).__name__}: {error}",
            hint="Correct the handler, or set dead_letter to put such records aside.",
        )
        stopped.__cause__ = error
        return stopped

    def _cancel(self, calls: Iterable[Call]) -> None:
        for call in list(calls):
            self._running[call].cancel()

    # --- Progress ---

    def _commit(self) -> None:
        now_seconds = time.monotonic()
        if self._options.mode is Mode.FANOUT and now_seconds < self._commit_at_seconds:
            return
        self._commit_at_seconds = now_seconds + COMMIT_SECONDS
        progress = self.work.progress()
        if not progress.is_empty:
            self._transport.commit(progress)

    def _pause(self) -> None:
        paused = self.work.paused()
        if paused != self._paused:
            self._paused = paused
            self._transport.pause(paused)

    @property
    def _name(self) -> str:
        return f"{self._options.group}/{self._options.topic}"


async def _wait(event: asyncio.Event, until_seconds: float) -> None:
    """Wait for the event, at most until this time."""
    try:
        async with asyncio.timeout(max(0.0, until_seconds - time.monotonic())):
            await event.wait()
    except TimeoutError:
        return


def _listed(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(sorted(map(str, partitions))) or "nothing"
