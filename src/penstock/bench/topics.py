"""Topics of measurements: a new topic is created and deleted, an existing one is kept.

Every end of the block, Ctrl-C included, deletes a created topic. After a second Ctrl-C during the
deletion the topic may stay: topics with the prefix `penstock-bench-` can be deleted.
"""

import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.bench.workload import Workload
from penstock.client.calls import LATEST_TIMESTAMP, NewTopic
from penstock.client.cluster import Cluster
from penstock.core.errors import UnknownTopicOrPartitionError

PREFIX: Final = "penstock-bench-"
LOOK_SECONDS: Final = 0.05


@contextmanager
def bench_topic(cluster: Cluster, workload: Workload) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Return a topic for this workload, and its partitions."""
    if workload.topic is not None:
        yield workload.topic, _partitions(cluster, workload.topic)
        return
    name = f"{PREFIX}{uuid.uuid4().hex[:12]}"
    wanted = NewTopic(
        name, workload.partitions, workload.replication_factor, dict(workload.topic_settings)
    )
    is_made = False
    try:
        # An interrupt in the middle of the call would leave an unknown topic.
        with _signals_wait():
            cluster.create_topic(wanted)
            is_made = True
        yield name, _partitions_of_new(cluster, name, workload.timeout_seconds)
    finally:
        if is_made:
            cluster.delete_topic(name)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the block has ended."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _partitions_of_new(cluster: Cluster, name: str, seconds_max: float) -> tuple[int, ...]:
    """Wait for the leaders of a new topic.

    Kafka answers some moments before its brokers know the topic, and they name its leaders some
    moments before these lead. A measurement repeats no request, so the leaders are asked here.
    """
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            places = cluster.partitions_of(name)
        except UnknownTopicOrPartitionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)
        else:
            cluster.find_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
            return tuple(at.partition for at in places)


def _partitions(cluster: Cluster, name: str) -> tuple[int, ...]:
    try:
        found = cluster.partitions_of(name)
    except UnknownTopicOrPartitionError as error:
        raise UnknownTopicOrPartitionError(
            f"there is no topic {name}. Create it with `penstock topic create {name}`, or leave "
            "the topic out: then a topic is created, and deleted at the end."
        ) from error
    return tuple(at.partition for at in found)
