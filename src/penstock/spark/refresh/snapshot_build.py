"""`build_with`: plans the tasks of a snapshot of a topic, one for each partition, and publishes it.

The driver reads the bounds of each partition once: the start of the log, and the last stable offset
as its end. Tasks fetch from the brokers themselves; no record goes through the driver or between
tasks, because all records of a key are in one partition. Guarantees: the snapshot is published when
all tasks have ended, in one step; until then readers find the one before. A build that fails leaves
the one before, and its files are removed by the next build.

It does NOT run tasks: `snapshot_job` runs them in Spark.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import uuid4

from penstock.client import calls
from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.transport.options import ClientOptions
from penstock.core.clock import Clock
from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.edge.refresh.manifest import (
    FORMAT,
    PARTITIONS_MAX,
    VERSION,
    Manifest,
    SnapshotPartition,
)
from penstock.edge.refresh.snapshot_errors import SnapshotError
from penstock.edge.refresh.snapshot_stores import (
    absolute_place,
    commit_snapshot,
    open_store,
)
from penstock.spark.refresh.partition_build import PartitionTask

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

RunTasks = Callable[[Sequence[PartitionTask]], list[str]]
"""Runs tasks somewhere; returns their results in order."""


class BuildOptions(NamedTuple):
    """What to build."""

    client: ClientOptions
    topic: str
    place: str
    compression: str = "zstd"


def plan_tasks(
    cluster: Cluster, options: BuildOptions, build_id: str
) -> tuple[list[PartitionTask], Manifest]:
    """Return the tasks, and a manifest without partitions."""
    topic = cluster.describe([options.topic]).get(options.topic)
    if topic is None:
        raise UnknownTopicOrPartitionError(
            f"topic {options.topic!r} not found.", hint="List topics with `penstock topic list`."
        )
    places = [TopicPartition(options.topic, number) for number in sorted(topic.partitions)]
    if len(places) > PARTITIONS_MAX:
        raise SnapshotError(f"a snapshot has at most {PARTITIONS_MAX} partitions")
    # Retention may move the start past an end that was read before it: the partition is empty then.
    ends = cluster.look_up_offsets(
        dict.fromkeys(places, calls.LATEST_TIMESTAMP), is_read_committed=True
    )
    starts = cluster.look_up_offsets(
        dict.fromkeys(places, calls.EARLIEST_TIMESTAMP), is_read_committed=True
    )
    tasks = [
        PartitionTask(
            client=options.client.for_task(),
            place=options.place,
            build_id=build_id,
            at=at,
            topic_id=topic.topic_id,
            start_offset=starts[at].offset,
            end_offset=max(ends[at].offset, starts[at].offset),
            codec=CODECS[options.compression],
        )
        for at in places
    ]
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        id=build_id,
        topic=options.topic,
        topic_id=topic.topic_id,
        cluster_id=cluster.cluster_id(),
        created_ms=0,
        partitions=(),
    )
    return tasks, manifest


def build_with(options: BuildOptions, run_tasks: RunTasks, clock: Clock) -> Manifest:
    """Build and publish a snapshot; `run_tasks` carries out the tasks."""
    build_id = uuid4().hex
    options = options._replace(place=absolute_place(options.place))
    store = open_store(options.place)
    store.prepare()
    with open_cluster(options.client) as cluster:
        tasks, empty = plan_tasks(cluster, options, build_id)
    built = [SnapshotPartition.model_validate_json(one) for one in run_tasks(tasks)]
    manifest = empty.model_copy(update={"partitions": tuple(built), "created_ms": clock.now_ms()})
    commit_snapshot(store, manifest)
    return manifest
