"""The decision topic: created if it is missing, checked if it exists.

Guarantees: after `ensure_topic` the topic exists, has leaders, and keeps the last record of each
key. A topic created here has the brokers' default number of replicas; with three or more of them, a
decision is on two before it counts. A topic created by another program is not changed.

`decision_log` reads and writes decisions.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from penstock.client.calls import NewTopic
from penstock.client.cluster import Cluster
from penstock.client.transport.call import raise_error
from penstock.client.transport.retries import Pauses
from penstock.core.errors import BrokerAnswerError
from penstock.protocol.error_codes import ErrorCode
from penstock.spark.sink.errors import DecisionTopicError

PARTITIONS: Final = 8
"""Partitions of a new decision topic: queries in different partitions do not wait."""
TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": "1048576",
}
"""Each query keeps two records; small segments are compacted early, so that reading stays short."""
INSYNC: Final = "min.insync.replicas"
INSYNC_REPLICAS_WANTED: Final = 2
"""A decision survives the loss of a broker, and with three replicas one broker may be unreachable.

With two replicas, no broker may be unreachable, so these topics keep the brokers' default.
"""
REPLICAS_FOR_INSYNC_MIN: Final = 3
BROKERS_FOR_REPLICAS_MIN: Final = 3
"""A cluster of this size is meant for replication: a topic without it is probably a mistake."""

LOGGER: Final = logging.getLogger("penstock.spark")


def ensure_topic(cluster: Cluster, name: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """Create the decision topic if it is missing; reject a topic that deletes decisions."""
    is_new = name not in cluster.describe([name])
    if is_new:
        _create(cluster, name)
        _wait_until_it_appears(cluster, name, sleep)
    replicas = min(len(one.replica_nodes) for one in cluster.topic(name).partitions)
    configs = _configs(cluster, name)
    policy = configs.get("cleanup.policy", "compact")
    if policy != "compact":
        raise DecisionTopicError(
            f"the topic of decisions, {name}, has cleanup.policy={policy}: it would forget what "
            "was decided, and a restarted query would write batches twice. Set it to compact, or "
            "name another topic with the option decisionTopic."
        )
    if is_new and replicas >= REPLICAS_FOR_INSYNC_MIN:
        _keep_in_sync(cluster, name, configs)
    _warn_of_one_replica(name, replicas, len(cluster.brokers()))


def _create(cluster: Cluster, name: str) -> None:
    try:
        cluster.create_topic(NewTopic(name, PARTITIONS, configs=TOPIC_CONFIGS))
    except BrokerAnswerError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise DecisionTopicError(
                f"the topic of decisions, {name}, is not there and cannot be created: {error}. "
                "Create it with cleanup.policy=compact, or name another one with the option "
                "decisionTopic."
            ) from error


def _configs(cluster: Cluster, name: str) -> dict[str, str | None]:
    described = cluster.topic_configs([name])[name]
    raise_error(described.error_code, described.error_message, name)
    return {one.name: one.value for one in described.configs}


def _keep_in_sync(cluster: Cluster, name: str, configs: Mapping[str, str | None]) -> None:
    if int(configs.get(INSYNC) or 1) >= INSYNC_REPLICAS_WANTED:
        return
    try:
        cluster.configure_topic(name, {INSYNC: str(INSYNC_REPLICAS_WANTED)})
    except BrokerAnswerError as error:
        LOGGER.warning(
            "%s of the topic of decisions, %s, could not be set: %s. Set it to %d, so that a "
            "decision is on two brokers before it counts.",
            INSYNC,
            name,
            error,
            INSYNC_REPLICAS_WANTED,
        )


def _warn_of_one_replica(name: str, replicas: int, broker_count: int) -> None:
    if replicas == 1 and broker_count >= BROKERS_FOR_REPLICAS_MIN:
        LOGGER.warning(
            "the topic of decisions, %s, has one replica on a cluster of %d brokers. While its "
            "broker is unreachable, no micro-batch is committed; if its disk is lost, so are the "
            "decisions, and a query that restarts then may write its last batch a second time. "
            "Give it three replicas (kafka-reassign-partitions), and set %s to %d.",
            name,
            broker_count,
            INSYNC,
            INSYNC_REPLICAS_WANTED,
        )


def _wait_until_it_appears(cluster: Cluster, name: str, sleep: Callable[[float], None]) -> None:
    """Wait for the topic's metadata: Kafka confirms a new topic before its brokers have it."""
    pauses = Pauses(cluster.deadline_seconds)
    while name not in cluster.describe([name]):
        pause = pauses.next_pause(cluster.clock.monotonic())
        if pause is None:
            raise DecisionTopicError(
                f"the topic of decisions, {name}, was created and does not appear. See the logs of "
                "the brokers, or name another topic with the option decisionTopic."
            )
        sleep(pause)
