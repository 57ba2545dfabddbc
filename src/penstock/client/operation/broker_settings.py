"""Settings of single brokers that operation changes: the drain, and the throttles of moves.

A broker accepts its own settings only, as in Apache Kafka: a request goes to the broker it is for.
Setting a value twice has the same effect as once, so requests are retried.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.client import calls
from penstock.client.cluster import Cluster
from penstock.client.operation.state_reading import DRAIN_SETTING
from penstock.client.transport.call import raise_error
from penstock.core.errors import UnknownBrokerError

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
ALL_REPLICAS: Final = "*"
"""Replicas in sync are never throttled, so all replicas of a topic may be named."""


def set_drained(cluster: Cluster, broker_id: int, *, is_drained: bool) -> None:
    """Ask the cluster that the broker leads nothing, or that it may lead again."""
    configure_broker(cluster, broker_id, {DRAIN_SETTING: "true" if is_drained else None})


def configure_broker(cluster: Cluster, broker_id: int, values: Mapping[str, str | None]) -> None:
    """Change settings of a running broker; None resets one to its default."""
    call = calls.configure(calls.BROKER_RESOURCE, str(broker_id), values)

    def attempt() -> None:
        address = cluster.brokers().get(broker_id)
        if address is None:
            raise UnknownBrokerError(
                f"broker {broker_id} does not run.",
                hint="`penstock cluster status` lists the brokers.",
            )
        for result in cluster.at(address, call):
            raise_error(result.error_code, result.error_message, f"broker {broker_id}")

    cluster.repeat(attempt, repeatable=True)


def throttle(
    cluster: Cluster, bytes_per_second: int | None, brokers: Iterable[int], topics: Iterable[str]
) -> None:
    """Limit the copies of new replicas of these topics; None ends the limit.

    The limit is for each broker, once for what it sends and once for what it receives.
    """
    is_limited = bytes_per_second is not None
    rate = str(bytes_per_second) if is_limited else None
    replicas = ALL_REPLICAS if is_limited else None
    # The rates first: without one, a throttled replica has no limit.
    for broker_id in brokers:
        configure_broker(cluster, broker_id, {LEADER_RATE: rate, FOLLOWER_RATE: rate})
    for topic in topics:
        cluster.configure_topic(topic, {LEADER_REPLICAS: replicas, FOLLOWER_REPLICAS: replicas})
