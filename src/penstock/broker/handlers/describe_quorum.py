"""DescribeQuorum: the controller of the cluster, as its only voter.

Kafka's words are used for what Penstock has: the offset is the revision of the metadata store, and
the epoch that of the controller's registration, which a restart raises. There is no metadata log
that could be fetched.
"""

from typing import Final

from penstock.broker.advertised import controller_id
from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.cluster.topic_rules import CLUSTER_METADATA_TOPIC
from penstock.core.types import CLUSTER_LISTENER, PUSH_LISTENER
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from penstock.security.acls.values import Operation

_NODES_VERSION: Final = 2
"""The first version with the listeners of the voters."""
_EPOCH_MAX: Final = 2**31 - 1


def handle(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    """Describe the metadata partition if it alone is requested; else all get an error."""
    if not context.allows_cluster(Operation.DESCRIBE):
        return DescribeQuorumResponse(
            error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.message, topics=()
        )
    if not _is_metadata_only(request):
        return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=_unknown(request))
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=(
            ResponseTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(_quorum(context),)),
        ),
        nodes=_nodes(context) if context.api_version >= _NODES_VERSION else (),
    )


def _is_metadata_only(request: DescribeQuorumRequest) -> bool:
    asked = [
        (topic.topic_name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    return asked == [(CLUSTER_METADATA_TOPIC, 0)] and len(request.topics) == 1


def _quorum(context: RequestContext) -> ResponsePartitionData:
    services = context.services
    image, now_ms = services.metadata.image, services.clock.now_ms()
    node_id = controller_id(image, services.node_id)
    voter = ReplicaState(
        replica_id=node_id,
        log_end_offset=image.revision,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return ResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=node_id,
        leader_epoch=min(image.brokers[node_id].epoch, _EPOCH_MAX),
        high_watermark=image.revision,
        current_voters=(voter,),
        observers=(),
    )


def _nodes(context: RequestContext) -> tuple[Node, ...]:
    image = context.services.metadata.image
    broker = image.brokers[controller_id(image, context.services.node_id)]
    listeners = tuple(
        Listener(name=one.listener, host=one.host, port=one.port)
        for one in broker.endpoints
        if one.listener not in (CLUSTER_LISTENER, PUSH_LISTENER)
    )
    return (Node(node_id=broker.id, listeners=listeners),)


def _unknown(request: DescribeQuorumRequest) -> tuple[ResponseTopicData, ...]:
    return tuple(
        ResponseTopicData(
            topic_name=topic.topic_name,
            partitions=tuple(
                ResponsePartitionData(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message="This server does not host this topic-partition.",
                    leader_id=0,
                    leader_epoch=0,
                    high_watermark=0,
                    current_voters=(),
                    observers=(),
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
