"""Identifiers and small frozen values that every layer shares.

Plain `int` and `str` stay plain where the name of the argument already tells the unit; a class is
made only for what travels as one thing.
"""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics: clients show them apart from the user's."""
