"""Rules for the name, the partitions and the replicas of a new topic.

Each function returns the valid value or raises a domain error with Kafka's wording. They check one
topic alone; `controller` checks whether the name is free. Names are checked here before they become
a key or a directory: only ASCII letters, digits, `.`, `_` and `-` are allowed, so a name cannot
leave the data directory or forge a log line.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicNameError,
    PolicyViolationError,
)
from penstock.core.limits import (
    PARTITIONS_PER_BROKER_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    TOPIC_NAME_CHARACTERS_MAX,
)

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka stores its own metadata in a directory of this name; a start never loads it as a log."""

DEFAULT: Final = -1
"""The value in a request that means the cluster's default."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The defaults and limits of this cluster."""

    partition_count_default: int = 1
    replication_factor_default: int = 1
    partitions_per_topic_max: int = PARTITIONS_PER_TOPIC_MAX
    partitions_per_broker_max: int = PARTITIONS_PER_BROKER_MAX


def check_topic_name(name: str) -> None:
    """Raise an error for a name that breaks Kafka's rules."""
    if not name:
        raise InvalidTopicNameError("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicNameError(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > TOPIC_NAME_CHARACTERS_MAX:
        # Only a part is repeated: the name may be a megabyte.
        shown = name[:TOPIC_NAME_CHARACTERS_MAX]
        raise InvalidTopicNameError(
            f"Topic name is invalid: the length of {shown!r}... is longer than the max allowed "
            f"length {TOPIC_NAME_CHARACTERS_MAX}"
        )
    if _LEGAL_NAME.fullmatch(name) is None:
        raise InvalidTopicNameError(
            f"Topic name is invalid: {name!r} contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )


def check_creatable_name(name: str) -> None:
    """Raise an error for a name that requests may contain but a new topic cannot have."""
    check_topic_name(name)
    if name == CLUSTER_METADATA_TOPIC:
        raise InvalidRequestError(f"Creation of internal topic {name} is prohibited.")


def partition_count(asked: int, rules: TopicRules) -> int:
    """Return the number of partitions for a request of `asked`."""
    if asked != DEFAULT and asked < 1:
        raise InvalidPartitionsError(
            "Number of partitions was set to an invalid non-positive value."
        )
    count = rules.partition_count_default if asked == DEFAULT else asked
    if count > rules.partitions_per_topic_max:
        raise PolicyViolationError(
            f"Excessively large number of partitions: {count}, at most "
            f"{rules.partitions_per_topic_max} in one topic."
        )
    return count


def replication_factor(asked: int, running: int, absent: int, rules: TopicRules) -> int:
    """Return the number of replicas for a request of `asked`, if the brokers are enough."""
    if asked != DEFAULT and asked < 1:
        raise InvalidReplicationFactorError(
            "Replication factor must be larger than 0, or -1 to use the default value."
        )
    factor = rules.replication_factor_default if asked == DEFAULT else asked
    check_factor(factor, running, absent)
    return factor


def check_factor(factor: int, running: int, absent: int) -> None:
    """Raise an error if the brokers are too few for the number of replicas, or if none runs."""
    if not running:
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {factor} time(s): All brokers are currently fenced."
        )
    if factor > running + absent:
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {factor} time(s): The target replication factor of "
            f"{factor} cannot be reached because only {running + absent} broker(s) are registered."
        )


def check_assignment(
    assignments: Sequence[tuple[int, tuple[int, ...]]],
    *,
    partition_count_asked: int,
    replication_factor_asked: int,
    brokers: Collection[int],
    rules: TopicRules,
) -> tuple[tuple[int, ...], ...]:
    """Return the requested replicas of each partition, ordered by partition number."""
    if replication_factor_asked != DEFAULT:
        raise InvalidRequestError(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if partition_count_asked != DEFAULT:
        raise InvalidRequestError(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    partition_count(len(assignments), rules)
    replicas_by_index: dict[int, tuple[int, ...]] = {}
    for index, replicas in assignments:
        if index in replicas_by_index:
            raise InvalidReplicaAssignmentError(
                f"Found multiple manual partition assignments for partition {index}"
            )
        check_replicas(replicas, len(assignments[0][1]), brokers)
        replicas_by_index[index] = replicas
    if replicas_by_index.keys() != set(range(len(assignments))):
        raise InvalidReplicaAssignmentError(
            "partitions should be a consecutive 0-based integer sequence"
        )
    return tuple(replicas_by_index[index] for index in range(len(assignments)))


def check_replicas(replicas: tuple[int, ...], count: int | None, brokers: Collection[int]) -> None:
    """Raise an error for invalid replicas; `count` is the number in the other partitions."""
    if not replicas:
        raise InvalidReplicaAssignmentError(
            "The manual partition assignment includes an empty replica list."
        )
    for broker_id in sorted(replicas):
        if broker_id not in brokers:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes broker {broker_id}, but no such broker "
                "is registered."
            )
    if len(set(replicas)) != len(replicas):
        repeated = next(broker for broker in replicas if replicas.count(broker) > 1)
        raise InvalidReplicaAssignmentError(
            f"The manual partition assignment includes the broker {repeated} more than once."
        )
    if count is not None and len(replicas) != count:
        raise InvalidReplicaAssignmentError(
            "The manual partition assignment includes a partition with "
            f"{len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {count} replica(s)."
        )
