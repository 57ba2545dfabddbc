"""`ConsumerRecord`: the record that a handler gets. It never changes and refers to no connection.

A record that comes back from a retry topic has the topic, partition, offset and headers of the
original record; only `attempt` is higher.
"""

import json
from dataclasses import dataclass
from typing import Any

from penstock.core.types import TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record of a topic; key, value and headers are bytes as stored."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    attempt: int = 1
    """1 for the first delivery; in queue mode the broker's delivery count."""

    @property
    def at(self) -> TopicPartition:
        """Return topic and partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def is_delete(self) -> bool:
        """Whether the value is null: the record deletes its key."""
        return self.value is None

    @property
    def size_bytes(self) -> int:
        """Return the bytes of key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        return size + sum(len(name) + len(value or b"") for name, value in self.headers)

    def text(self) -> str:
        """Return the value as UTF-8 text; a null value is an empty text."""
        return "" if self.value is None else self.value.decode()

    def json(self) -> Any:  # noqa: ANN401 (a JSON document has any type)
        """Return the value as a JSON document; a null value is None."""
        return None if self.value is None else json.loads(self.value)

    def header(self, name: str) -> bytes | None:
        """Return the last header of this name; None if there is none."""
        for header_name, value in reversed(self.headers):
            if header_name == name:
                return value
        return None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"
