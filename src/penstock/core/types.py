"""Identifiers and small frozen values that every layer shares.

Plain `int` and `str` stay plain if the argument's name has the unit; only values that belong
together have a class.
"""

from typing import Final, NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PLAINTEXT: Final = "PLAINTEXT"
"""The protocol without encryption and login, and the name of the only listener with it."""
CLUSTER_LISTENER: Final = "CLUSTER"
"""Name of the listener for other brokers; clients do not learn its address."""
PUSH_LISTENER: Final = "penstock.push"
"""Name of the push address in the registration of a broker; Kafka clients do not see it."""

OFFSETS_TOPIC = "__consumer_offsets"
"""The topic with the state of group coordinators."""
TRANSACTIONS_TOPIC = "__transaction_state"
"""The topic with the state of transaction coordinators."""
SHARE_STATE_TOPIC = "__share_group_state"
"""The topic with the state of share coordinators."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
"""Kafka's own topics: clients show them separately from the user's."""
