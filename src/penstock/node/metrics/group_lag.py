"""The lag of every group as a metric: records between its committed offset and the log's end.

The end is the high watermark, as for `penstock group lag` and Kafka's tool. A partition that is not
on this broker, or that was deleted, has no row; an offset beyond the end has lag 0. It reads loaded
shards and loads none: a group whose shard is loading appears afterwards.
"""

from collections.abc import Iterator

from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.runtime import Runtime
from penstock.core.metrics import Row
from penstock.replication.manager import ReplicaManager


def lag_rows(runtime: Runtime, replicas: ReplicaManager) -> Iterator[Row]:
    """Yield one row for each committed offset: group, topic, partition."""
    for driver in runtime:
        shard = driver.shard
        assert isinstance(shard, GroupShard)
        for (group_id, topic, partition), offset in shard.state.offsets.committed():
            hosted = replicas.find(topic, partition)
            if hosted is not None:
                lag = max(0, hosted.state.high_watermark - offset)
                yield Row((group_id, topic, str(partition)), lag)
