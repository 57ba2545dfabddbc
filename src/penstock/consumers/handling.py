"""Handlers of records and of errors: their types, and the outcomes that an error handler returns.

`MessageHandler` and `ErrorHandler` describe functions; no class has to inherit from them. Both may
be sync or async. A sync handler runs in a thread, never on the event loop.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from penstock.consumers.consumer_record import ConsumerRecord


class ErrorAction(Enum):
    """The outcome of an error handler. None instead of an action follows the retry policy."""

    RETRY = "retry"
    """Try again after the pause of the policy. Without attempts left: as DEAD_LETTER."""
    DEAD_LETTER = "dead_letter"
    """Write the record to the dead-letter topic now; without such a topic: as STOP (fanout), or
    reject (queue)."""
    SKIP = "skip"
    """Count the record as done. It is not delivered again."""
    STOP = "stop"
    """Stop the consumer with an error. The record is not done and is delivered again."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call of a handler that failed: its records, its error, and the number of this attempt."""

    records: tuple[ConsumerRecord, ...]
    error: BaseException
    attempt: int
    attempts_max: int

    @property
    def record(self) -> ConsumerRecord:
        """Return the first record; with batch=1 the only one."""
        return self.records[0]

    @property
    def is_last(self) -> bool:
        """Whether the policy has no attempt left."""
        return self.attempt >= self.attempts_max


class MessageHandler(Protocol):
    """Handles one record, or with `batch` above 1 a list of records of one partition.

    It returns when the record is done and raises if it failed. Records can be delivered more than
    once, so it must be safe to repeat.
    """

    def __call__(self, record: Any, /) -> Awaitable[object] | object:  # noqa: ANN401
        """Handle a record or a batch."""
        ...


class ErrorHandler(Protocol):
    """Chooses the outcome of a failed call."""

    def __call__(self, failure: Failure, /) -> Awaitable[ErrorAction | None] | ErrorAction | None:
        """Return the action; None follows the retry policy."""
        ...
