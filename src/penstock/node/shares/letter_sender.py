"""`Sender`: has the dead letters of one share-partition written, with pauses after failures.

One write is under way at a time. Records whose letters are written are archived; records whose
letters failed wait, and the pause before the next attempt doubles up to a minute. The queue goes on
meanwhile. When the group has no dead-letter topic any more, waiting records are archived without
letters.

It decides nothing about other records. It does NOT write letters: `share_dead_letters` does.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from penstock.cluster.configs.group_configs import DeliverySettings
from penstock.coordinator.shares.delivery.share_delivery import Letter, ShareDelivery
from penstock.node.shares.letter_records import Source
from penstock.node.shares.share_dead_letters import DeadLetterError, LetterWriter
from penstock.node.shares.state_calls import Tasks
from penstock.replication.hosted_partition import HostedPartition

logger = logging.getLogger(__name__)

LETTERS_MAX: Final = 500
"""Letters of one write: about 200 bytes each without copies."""
PAUSE_SECONDS_MIN: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0


class Sender:
    """The letters of one share-partition in one leader epoch."""

    __slots__ = (
        "_alarm",
        "_delivery",
        "_hosted",
        "_is_stopped",
        "_on_change",
        "_pause_seconds",
        "_settings",
        "_source",
        "_tasks",
        "_writer",
        "is_sending",
    )

    def __init__(
        self,
        group: str,
        hosted: HostedPartition,
        delivery: ShareDelivery,
        settings: Callable[[], DeliverySettings],
        means: tuple[LetterWriter, Tasks],
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called after each write: records may be archived, or a pause begins."""
        self._source = Source(group, hosted.name.topic, hosted.name.partition)
        self._hosted = hosted
        self._delivery = delivery
        self._settings = settings
        self._writer, self._tasks = means
        self._on_change = on_change
        self._alarm: asyncio.TimerHandle | None = None
        self.is_sending = self._is_stopped = False
        self._pause_seconds = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether the last write failed, and the next one comes later."""
        return self._alarm is not None

    def send(self) -> None:
        """Begin to write letters that are due, unless a write is under way or a pause lasts."""
        if self.is_sending or self._is_stopped or self._alarm is not None:
            return
        settings, delivery = self._settings(), self._delivery
        letters = delivery.take_letters(LETTERS_MAX)
        if not letters:
            return
        self.is_sending = True
        self._tasks.start(self._write(settings, letters))

    def stop(self) -> None:
        """Begin no write any more; a write under way still ends."""
        self._is_stopped = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _write(self, settings: DeliverySettings, letters: Sequence[Letter]) -> None:
        writer, count = self._writer, 0
        problem = ""
        try:
            if settings.dead_letter_topic:
                count = await writer.write(self._source, self._hosted, settings, letters)
            else:
                count = sum(one.last - one.first + 1 for one in letters)
        except DeadLetterError as error:
            problem = str(error)
        except Exception as error:
            # Caught here, because a task that ends with an exception ends the broker.
            logger.exception("dead letters of %s were not written, by a defect", self._source)
            problem = f"a defect ({type(error).__name__}); see the log of the broker"
        self.is_sending = False
        self._settle(letters, count)
        if problem:
            writer.failed(self._source, problem)
            self._pause()
        else:
            self._pause_seconds = 0.0
        if not self._is_stopped:
            self._on_change()

    def _settle(self, letters: Sequence[Letter], count: int) -> None:
        """Archive the records of the first `count` letters; the others are due again."""
        for letter in letters:
            size = letter.last - letter.first + 1
            written = min(size, count)
            count -= written
            if written:
                self._delivery.letters_written(letter.first, letter.first + written - 1)
            if written < size:
                self._delivery.letters_failed(letter.first + written, letter.last)

    def _pause(self) -> None:
        doubled = max(PAUSE_SECONDS_MIN, 2 * self._pause_seconds)
        self._pause_seconds = min(PAUSE_SECONDS_MAX, doubled)
        if not self._is_stopped:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(self._pause_seconds, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._on_change()
