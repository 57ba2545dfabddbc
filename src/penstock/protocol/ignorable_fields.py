"""Fields that may be dropped silently in versions that lack them.

Kafka's schemas mark a field `ignorable` or not; kio's classes do not have the mark. The table
follows Apache Kafka 4.3's own message classes: a field of ours that is absent in the version being
written, has another value than its default, and is NOT in this table, is a bug of ours, and `codec`
raises `LostFieldError`. A field that a newer schema adds is therefore refused in older versions
until it is added here.

The key is `Message.Struct` by kio's names; the values are our field names.
"""

from typing import Final

IGNORABLE_FIELDS: Final[dict[str, frozenset[str]]] = {
    "AddPartitionsToTxnResponse.AddPartitionsToTxnResponse": frozenset({"error_code"}),
    "AlterPartitionReassignmentsResponse.AlterPartitionReassignmentsResponse": frozenset(
        {"allow_replication_factor_change"}
    ),
    "ApiVersionsRequest.ApiVersionsRequest": frozenset(
        {"client_software_name", "client_software_version"}
    ),
    "ApiVersionsResponse.ApiVersionsResponse": frozenset(
        {
            "finalized_features",
            "finalized_features_epoch",
            "supported_features",
            "throttle_time_ms",
            "zk_migration_ready",
        }
    ),
    "BeginQuorumEpochRequest.BeginQuorumEpochRequest": frozenset({"leader_endpoints", "voter_id"}),
    "BeginQuorumEpochRequest.PartitionData": frozenset({"voter_directory_id"}),
    "BrokerRegistrationRequest.BrokerRegistrationRequest": frozenset(
        {"log_dirs", "previous_broker_epoch"}
    ),
    "ConsumerGroupDescribeResponse.Member": frozenset({"member_type"}),
    "ConsumerProtocolSubscription.ConsumerProtocolSubscription": frozenset(
        {"generation_id", "owned_partitions", "rack_id"}
    ),
    "CreateTopicsResponse.CreatableTopicResult": frozenset(
        {"configs", "num_partitions", "replication_factor", "topic_config_error_code", "topic_id"}
    ),
    "DeleteTopicsRequest.DeleteTopicsRequest": frozenset({"topic_names"}),
    "DeleteTopicsResponse.DeletableTopicResult": frozenset({"error_message", "topic_id"}),
    "DescribeConfigsResponse.DescribeConfigsResourceResult": frozenset(
        {"config_type", "documentation"}
    ),
    "DescribeGroupsResponse.DescribeGroupsResponse": frozenset({"throttle_time_ms"}),
    "DescribeGroupsResponse.DescribedGroupMember": frozenset({"group_instance_id"}),
    "DescribeLogDirsResponse.DescribeLogDirsResponse": frozenset({"error_code"}),
    "DescribeLogDirsResponse.DescribeLogDirsResult": frozenset(
        {"is_cordoned", "total_bytes", "usable_bytes"}
    ),
    "DescribeQuorumResponse.DescribeQuorumResponse": frozenset({"error_message"}),
    "DescribeQuorumResponse.PartitionData": frozenset({"error_message"}),
    "DescribeQuorumResponse.ReplicaState": frozenset(
        {"last_caught_up_timestamp", "last_fetch_timestamp"}
    ),
    "DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition": frozenset(
        {"lag"}
    ),
    "EndQuorumEpochRequest.EndQuorumEpochRequest": frozenset({"leader_endpoints"}),
    "EndQuorumEpochRequest.PartitionData": frozenset(
        {"preferred_candidates", "preferred_successors"}
    ),
    "EndTxnResponse.EndTxnResponse": frozenset({"producer_epoch", "producer_id"}),
    "FetchRequest.FetchPartition": frozenset(
        {"current_leader_epoch", "high_watermark", "log_start_offset", "replica_directory_id"}
    ),
    "FetchRequest.FetchRequest": frozenset(
        {"cluster_id", "rack_id", "session_epoch", "session_id"}
    ),
    "FetchRequest.FetchTopic": frozenset({"topic", "topic_id"}),
    "FetchRequest.ForgottenTopic": frozenset({"topic", "topic_id"}),
    "FetchResponse.FetchResponse": frozenset({"error_code"}),
    "FetchResponse.FetchableTopicResponse": frozenset({"topic", "topic_id"}),
    "FetchResponse.PartitionData": frozenset({"log_start_offset"}),
    "FetchSnapshotRequest.PartitionSnapshot": frozenset({"replica_directory_id"}),
    "FindCoordinatorResponse.FindCoordinatorResponse": frozenset(
        {"error_message", "throttle_time_ms"}
    ),
    "HeartbeatResponse.HeartbeatResponse": frozenset({"throttle_time_ms"}),
    "JoinGroupRequest.JoinGroupRequest": frozenset({"reason", "rebalance_timeout_ms"}),
    "JoinGroupResponse.JoinGroupResponse": frozenset({"protocol_type", "throttle_time_ms"}),
    "JoinGroupResponse.JoinGroupResponseMember": frozenset({"group_instance_id"}),
    "LeaderChangeMessage.Voter": frozenset({"voter_directory_id"}),
    "LeaveGroupRequest.MemberIdentity": frozenset({"reason"}),
    "LeaveGroupResponse.LeaveGroupResponse": frozenset({"throttle_time_ms"}),
    "ListConfigResourcesResponse.ConfigResource": frozenset({"resource_type"}),
    "ListGroupsResponse.ListGroupsResponse": frozenset({"throttle_time_ms"}),
    "ListGroupsResponse.ListedGroup": frozenset({"group_state", "group_type"}),
    "ListOffsetsRequest.ListOffsetsPartition": frozenset({"current_leader_epoch"}),
    "ListOffsetsRequest.ListOffsetsRequest": frozenset({"timeout_ms"}),
    "ListOffsetsResponse.ListOffsetsResponse": frozenset({"throttle_time_ms"}),
    "MetadataRequest.MetadataRequestTopic": frozenset({"topic_id"}),
    "MetadataResponse.MetadataResponse": frozenset(
        {"cluster_id", "controller_id", "error_code", "throttle_time_ms"}
    ),
    "MetadataResponse.MetadataResponseBroker": frozenset({"rack"}),
    "MetadataResponse.MetadataResponsePartition": frozenset({"leader_epoch", "offline_replicas"}),
    "MetadataResponse.MetadataResponseTopic": frozenset({"is_internal", "topic_id"}),
    "OffsetCommitRequest.OffsetCommitRequest": frozenset({"retention_time_ms"}),
    "OffsetCommitRequest.OffsetCommitRequestPartition": frozenset({"committed_leader_epoch"}),
    "OffsetCommitRequest.OffsetCommitRequestTopic": frozenset({"name", "topic_id"}),
    "OffsetCommitResponse.OffsetCommitResponse": frozenset({"throttle_time_ms"}),
    "OffsetCommitResponse.OffsetCommitResponseTopic": frozenset({"name", "topic_id"}),
    "OffsetFetchRequest.OffsetFetchRequestGroup": frozenset({"member_epoch", "member_id"}),
    "OffsetFetchRequest.OffsetFetchRequestTopics": frozenset({"name", "topic_id"}),
    "OffsetFetchResponse.OffsetFetchResponse": frozenset({"error_code", "throttle_time_ms"}),
    "OffsetFetchResponse.OffsetFetchResponsePartition": frozenset({"committed_leader_epoch"}),
    "OffsetFetchResponse.OffsetFetchResponseTopics": frozenset({"name", "topic_id"}),
    "OffsetForLeaderEpochRequest.OffsetForLeaderEpochRequest": frozenset({"replica_id"}),
    "ProduceRequest.TopicProduceData": frozenset({"name", "topic_id"}),
    "ProduceResponse.PartitionProduceResponse": frozenset(
        {"error_message", "log_start_offset", "record_errors"}
    ),
    "ProduceResponse.TopicProduceResponse": frozenset({"name", "topic_id"}),
    "ReadShareGroupStateSummaryResponse.PartitionResult": frozenset({"delivery_complete_count"}),
    "SaslAuthenticateResponse.SaslAuthenticateResponse": frozenset({"session_lifetime_ms"}),
    "ShareAcknowledgeResponse.ShareAcknowledgeResponse": frozenset({"acquisition_lock_timeout_ms"}),
    "ShareFetchRequest.ShareFetchRequest": frozenset({"share_acquire_mode"}),
    "SyncGroupRequest.SyncGroupRequest": frozenset({"protocol_name", "protocol_type"}),
    "SyncGroupResponse.SyncGroupResponse": frozenset(
        {"protocol_name", "protocol_type", "throttle_time_ms"}
    ),
    "TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition": frozenset({"committed_leader_epoch"}),
    "UpdateFeaturesResponse.UpdateFeaturesResponse": frozenset({"results"}),
    "VoteRequest.PartitionData": frozenset({"replica_directory_id", "voter_directory_id"}),
    "VoteRequest.VoteRequest": frozenset({"voter_id"}),
    "WriteShareGroupStateRequest.PartitionData": frozenset({"delivery_complete_count"}),
    "WriteTxnMarkersRequest.WritableTxnMarker": frozenset({"transaction_version"}),
}
