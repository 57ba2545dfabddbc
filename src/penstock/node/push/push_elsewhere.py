"""The push addresses of other brokers: a client of the wrong broker learns where to connect.

A broker registers its push address with the cluster if `edge.push_port` is a fixed port. Nothing is
forwarded: a broker delivers the partitions that it leads, to groups that it coordinates.
"""

from collections.abc import Iterable
from typing import Final

from penstock.broker.context import BrokerServices
from penstock.cluster.elections import NO_LEADER
from penstock.core.types import OFFSETS_TOPIC, PUSH_LISTENER
from penstock.node.push.push_refusals import refused
from penstock.protocol.error_codes import ErrorCode

NAMED_MAX: Final = 10
"""Brokers that a message names."""


def push_addresses(services: BrokerServices, brokers: Iterable[int]) -> dict[int, str]:
    """Return the push addresses of brokers, as far as they registered one."""
    found: dict[int, str] = {}
    for one in sorted(set(brokers)):
        broker = services.metadata.image.brokers.get(one)
        at = None if broker is None else broker.endpoint(PUSH_LISTENER)
        if at is not None:
            found[one] = str(at)
    return found


def named_brokers(services: BrokerServices, brokers: Iterable[int]) -> str:
    """Return brokers with their push addresses, for a message."""
    chosen = sorted(set(brokers))[:NAMED_MAX]
    addresses = push_addresses(services, chosen)
    return ", ".join(
        f"broker {one} ({addresses.get(one, 'no fixed push address')})" for one in chosen
    )


def check_coordinator(services: BrokerServices, group: str) -> None:
    """Raise `PushRefusedError` if another broker coordinates a group."""
    coordinators = services.coordinators
    if not coordinators.partition_count("group"):
        return
    at = services.metadata.image.partition(OFFSETS_TOPIC, coordinators.partition_of("group", group))
    if at is not None and at.leader not in (services.node_id, NO_LEADER):
        raise refused(
            ErrorCode.NOT_COORDINATOR,
            f"another broker coordinates the group {group}; subscribe at "
            f"{named_brokers(services, [at.leader])}",
        )
