"""`ConsumerOptions`: the arguments of `@penstock.consumer`, checked when the module is imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from penstock.consumers.handling import ErrorHandler
from penstock.consumers.limits import (
    BATCH_RECORDS_MAX,
    BUFFERED_BYTES_MAX,
    BUFFERED_RECORDS_MIN,
    CONCURRENCY_MAX,
    TIMEOUT_SECONDS_DEFAULT,
    TIMEOUT_SECONDS_MAX,
)
from penstock.consumers.retry_policy import RetryPolicy
from penstock.core.errors import ConfigError
from penstock.core.quantities import number_text

TRANSPORTS: Final = ("auto", "kafka", "push")
RETRY_TOPIC_PREFIX: Final = "retry."
_TOPIC_CHARACTERS_MAX: Final = 249


class Mode(Enum):
    """How the members of a group share a topic."""

    FANOUT = "fanout"
    """A consumer group: each partition has one member, records are in order."""
    QUEUE = "queue"
    """A share group: each record goes to one member, acknowledged one by one."""


class Order(Enum):
    """Records that are handled one after another in fanout mode."""

    KEY = "key"
    """Records of one partition with the same key. Records without a key have no order."""
    PARTITION = "partition"
    """All records of one partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The settings of one consumer."""

    topic: str
    group: str
    mode: Mode = Mode.FANOUT
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    dead_letter: str | None = None
    on_error: ErrorHandler | None = None
    batch: int = 1
    concurrency: int = 8
    order: Order = Order.KEY
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    start: str = "earliest"
    """The first offset of a group without a committed one: earliest or latest. A share group has
    its own setting, `share.auto.offset.reset`."""
    bootstrap_server: str | None = None
    transport: str = "auto"
    """kafka, push, or auto: push if a push server is known."""
    push_server: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of librdkafka for the connection, such as `security.protocol`."""

    def __post_init__(self) -> None:
        for name in ("topic", "group"):
            if not getattr(self, name):
                raise ConfigError(f"@penstock.consumer: {name} is empty.")
        _check_range("batch", self.batch, BATCH_RECORDS_MAX)
        _check_range("concurrency", self.concurrency, CONCURRENCY_MAX)
        if not 0 < self.timeout_seconds <= TIMEOUT_SECONDS_MAX:
            raise ConfigError(
                f"@penstock.consumer: timeout_seconds is {number_text(self.timeout_seconds)}, it "
                f"must be above 0 and at most {number_text(TIMEOUT_SECONDS_MAX)}."
            )
        if self.start not in ("earliest", "latest"):
            raise ConfigError(
                f"@penstock.consumer: start is {self.start!r}, it must be earliest or latest."
            )
        if self.transport not in TRANSPORTS:
            raise ConfigError(
                f"@penstock.consumer: transport is {self.transport!r}, it must be one of "
                f"{', '.join(TRANSPORTS)}."
            )
        if self.dead_letter is not None and self.dead_letter in ("", self.topic):
            raise ConfigError(
                f"@penstock.consumer: dead_letter {self.dead_letter!r} must be another topic than "
                f"{self.topic!r}.",
                hint=f"Write dead_letter='dlq.{self.topic}'.",
            )
        if self.retry_topic is not None and len(self.retry_topic) > _TOPIC_CHARACTERS_MAX:
            raise ConfigError(
                f"@penstock.consumer: the retry topic {self.retry_topic!r} has "
                f"{len(self.retry_topic)} characters, at most {_TOPIC_CHARACTERS_MAX} are allowed.",
                hint="Shorten the group or the topic, or set in_place of the RetryPolicy to the "
                "longest pause.",
            )

    @property
    def retry_topic(self) -> str | None:
        """Return the retry topic; None if every pause is short or the broker repeats (queue)."""
        if self.mode is Mode.QUEUE or not self.retry.needs_topic:
            return None
        return f"{RETRY_TOPIC_PREFIX}{self.group}.{self.topic}"

    @property
    def buffered_records_max(self) -> int:
        """Return the number of records in memory at which partitions are paused."""
        return max(BUFFERED_RECORDS_MIN, 2 * self.batch * self.concurrency)

    @property
    def buffered_bytes_max(self) -> int:
        """Return the bytes in memory at which partitions are paused."""
        return BUFFERED_BYTES_MAX


def _check_range(name: str, value: int, value_max: int) -> None:
    if not 1 <= value <= value_max:
        raise ConfigError(f"@penstock.consumer: {name} is {value}, it must be 1 to {value_max}.")
