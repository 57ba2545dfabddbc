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


OFFSETS_TOPIC = "__consumer_offsets"
"""Where group coordinators keep their state."""
TRANSACTIONS_TOPIC = "__transaction_state"
"""Where transaction coordinators keep theirs."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})
"""Kafka's own topics: clients show them apart from the user's."""
