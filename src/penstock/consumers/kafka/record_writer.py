"""`RecordWriter`: writes retries and dead letters; a write returns when the broker has it on disk.

The producer and its thread start with the first write, so a consumer whose handlers never fail has
neither. Retries of librdkafka are idempotent: one write is one record.
"""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from penstock.consumers.delivery.dead_letters import OutgoingRecord
from penstock.consumers.errors import RecordWriteError
from penstock.consumers.kafka import library

POLL_SECONDS = 0.1


class RecordWriter:
    """Writes records to other topics."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._producer: Any = None
        self._thread: threading.Thread | None = None
        self._is_closing = False

    async def write(self, record: OutgoingRecord) -> None:
        """Write a record; raise `RecordWriteError` if the broker does not acknowledge it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str | None] = loop.create_future()

        def delivered(error: object, _: object) -> None:
            text = None if error is None else str(error)
            loop.call_soon_threadsafe(_resolve, future, text)

        self._start()
        kafka = library.load()
        try:
            self._producer.produce(
                record.topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                on_delivery=delivered,
            )
        except (BufferError, kafka.KafkaException) as error:
            raise _failure(record, str(error)) from error
        if (reason := await future) is not None:
            raise _failure(record, reason)

    def _start(self) -> None:
        if self._producer is not None:
            return
        self._producer = library.load().Producer(dict(self._settings))
        self._thread = threading.Thread(target=self._serve, name="penstock-writer", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._is_closing:
            self._producer.poll(POLL_SECONDS)

    def close(self) -> None:
        """End the thread. Callers have awaited their writes."""
        self._is_closing = True
        if self._thread is not None:
            self._thread.join()


def _resolve(future: "asyncio.Future[str | None]", reason: str | None) -> None:
    if not future.done():
        future.set_result(reason)


def _failure(record: OutgoingRecord, reason: str) -> RecordWriteError:
    return RecordWriteError(
        f"a failed record could not be written to topic {record.topic!r}: {reason}. "
        "The consumer stops; its position is before that record.",
        hint=f"Check `penstock topic describe {record.topic}` and the access rules.",
    )
