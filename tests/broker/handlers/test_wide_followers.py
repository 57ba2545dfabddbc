"""A follower's fetch of very many partitions does not miss records that come between two slices.

Guards `_Fetch._has_moved`: the high watermark does not move before the follower has the records, so
without the check the fetch would be parked, and a producer would wait until another append.
"""

from penstock.broker.fetch_sessions import FetchPlan, requested
from penstock.broker.handlers.fetch import _Fetch
from penstock.broker.peer import Peer
from penstock.cluster.image import PartitionImage
from penstock.core.types import CLUSTER_LISTENER
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from penstock.replication.isr import InSyncReplicas
from penstock.replication.partition import PartitionState
from tests.broker.handlers.fakes import FakeServices
from tests.storage.logs import batch

NAMED = 12
"""A version of Fetch that names topics."""


def test_records_that_are_appended_between_two_slices_are_noticed() -> None:
    fakes = FakeServices()
    partition = fakes.node.partition
    state = PartitionImage((1, 2), 1, 4, (1, 2), 1, isr_epochs=(1, 1))
    role = PartitionState(
        partition.name,
        leader_epoch=4,
        is_leader=True,
        durable_offset=0,
        in_sync=InSyncReplicas(1, state, 0, 0.0),
    )
    fakes.node.partition = fakes.node.replicas.change_role(partition, role)
    asked = FetchPartition(
        partition=0, current_leader_epoch=4, fetch_offset=0, partition_max_bytes=1_000
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=1),
        max_wait_ms=5_000,
        min_bytes=1,
        topics=(FetchTopic(topic=partition.name.topic, partitions=(asked,)),),
    )
    context = fakes.context(NAMED)._replace(peer=Peer("", listener=CLUSTER_LISTENER))
    plan = FetchPlan(list(requested(request).values()))
    one = _Fetch(request, context, plan)
    assert one._read_cached() == 0
    assert not one._has_moved()
    fakes.node.append(batch(1))
    assert fakes.node.partition.state.high_watermark == 0
    assert one._has_moved()
