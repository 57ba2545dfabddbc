"""One module for each API; ApiVersions and the dispatcher read this table.

Versions are Kafka 4.3's for the APIs that exist here. Produce is served since version 3 and
advertised from 0, as Kafka does: some librdkafka versions turn compression off otherwise
(KAFKA-18659). Fetch 18 and ListOffsets 11 are Kafka 4.3's highest stable versions. The handlers
that every client needs at once are imported; the others are named, and imported at their first
request: a broker starts sooner, and many never need them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.broker.dispatch import Handler
from penstock.broker.handlers import (
    api_versions,
    fetch,
    metadata,
    produce,
)
from penstock.protocol.api_keys import ApiKey

HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {
        ApiKey.PRODUCE: Handler(
            produce.handle, 3, 13, lowest_advertised=0, shortcut=produce.handle_single
        ),
        ApiKey.FETCH: Handler(fetch.handle, 4, 18),
        ApiKey.LIST_OFFSETS: Handler("list_offsets", 1, 11),
        ApiKey.METADATA: Handler(metadata.handle, 0, 13),
        ApiKey.API_VERSIONS: Handler(api_versions.handle, 0, 4),
        ApiKey.CREATE_TOPICS: Handler("create_topics", 2, 7),
        ApiKey.DELETE_TOPICS: Handler("delete_topics", 1, 6),
        ApiKey.DELETE_RECORDS: Handler("delete_records", 0, 2),
        ApiKey.INIT_PRODUCER_ID: Handler("init_producer_id", 0, 5),
        ApiKey.FIND_COORDINATOR: Handler("find_coordinator", 0, 6),
        ApiKey.OFFSET_COMMIT: Handler("offset_commit", 2, 10),
        ApiKey.OFFSET_FETCH: Handler("offset_fetch", 1, 10),
        ApiKey.OFFSET_DELETE: Handler("offset_delete", 0, 0),
        ApiKey.JOIN_GROUP: Handler("join_group", 0, 9),
        ApiKey.SYNC_GROUP: Handler("sync_group", 0, 5),
        ApiKey.HEARTBEAT: Handler("heartbeat", 0, 4),
        ApiKey.LEAVE_GROUP: Handler("leave_group", 0, 5),
        ApiKey.DESCRIBE_GROUPS: Handler("describe_groups", 0, 6),
        ApiKey.LIST_GROUPS: Handler("list_groups", 0, 5),
        ApiKey.DELETE_GROUPS: Handler("delete_groups", 0, 2),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Handler("consumer_group_heartbeat", 0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: Handler("consumer_group_describe", 0, 1),
        ApiKey.ADD_PARTITIONS_TO_TXN: Handler("add_partitions_to_txn", 0, 5),
        ApiKey.ADD_OFFSETS_TO_TXN: Handler("add_offsets_to_txn", 0, 4),
        ApiKey.END_TXN: Handler("end_txn", 0, 5),
        ApiKey.TXN_OFFSET_COMMIT: Handler("txn_offset_commit", 0, 5),
        ApiKey.DESCRIBE_TRANSACTIONS: Handler("describe_transactions", 0, 0),
        ApiKey.LIST_TRANSACTIONS: Handler("list_transactions", 0, 2),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler("offset_for_leader_epoch", 2, 4),
        ApiKey.DESCRIBE_CONFIGS: Handler("describe_configs", 1, 4),
        ApiKey.DESCRIBE_CLUSTER: Handler("describe_cluster", 0, 2),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler("describe_topic_partitions", 0, 0),
        ApiKey.WRITE_TXN_MARKERS: Handler("write_txn_markers", 1, 2),
        ApiKey.DESCRIBE_PRODUCERS: Handler("describe_producers", 0, 0),
        ApiKey.CREATE_PARTITIONS: Handler("create_partitions", 0, 3),
        ApiKey.ALTER_CONFIGS: Handler("alter_configs", 0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler("incremental_alter_configs", 0, 1),
        ApiKey.LIST_CONFIG_RESOURCES: Handler("list_config_resources", 0, 1),
        ApiKey.DESCRIBE_LOG_DIRS: Handler("describe_log_dirs", 1, 5),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Handler("describe_client_quotas", 0, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: Handler("alter_client_quotas", 0, 1),
        ApiKey.DESCRIBE_ACLS: Handler("describe_acls", 1, 3),
        ApiKey.CREATE_ACLS: Handler("create_acls", 1, 3),
        ApiKey.DELETE_ACLS: Handler("delete_acls", 1, 3),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Handler("describe_user_scram_credentials", 0, 0),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Handler("alter_user_scram_credentials", 0, 0),
        ApiKey.DESCRIBE_QUORUM: Handler("describe_quorum", 0, 2),
        ApiKey.ELECT_LEADERS: Handler("elect_leaders", 0, 2),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Handler("list_partition_reassignments", 0, 0),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Handler("alter_partition_reassignments", 0, 1),
        ApiKey.UPDATE_FEATURES: Handler("update_features", 0, 2),
        ApiKey.UNREGISTER_BROKER: Handler("unregister_broker", 0, 0),
        ApiKey.SASL_HANDSHAKE: Handler("sasl_handshake", 0, 1),
        ApiKey.SASL_AUTHENTICATE: Handler("sasl_authenticate", 0, 2),
        ApiKey.SHARE_GROUP_HEARTBEAT: Handler("share_group_heartbeat", 1, 1),
        ApiKey.SHARE_GROUP_DESCRIBE: Handler("share_group_describe", 1, 1),
        ApiKey.SHARE_FETCH: Handler("share_fetch", 1, 2),
        ApiKey.SHARE_ACKNOWLEDGE: Handler("share_acknowledge", 1, 2),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: Handler("initialize_share_group_state", 0, 0),
        ApiKey.READ_SHARE_GROUP_STATE: Handler("read_share_group_state", 0, 0),
        ApiKey.WRITE_SHARE_GROUP_STATE: Handler("write_share_group_state", 0, 1),
        ApiKey.DELETE_SHARE_GROUP_STATE: Handler("delete_share_group_state", 0, 0),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Handler("read_share_group_state_summary", 0, 1),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Handler("describe_share_group_offsets", 0, 1),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: Handler("alter_share_group_offsets", 0, 0),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: Handler("delete_share_group_offsets", 0, 0),
        ApiKey.STREAMS_GROUP_DESCRIBE: Handler("streams_group_describe", 0, 0),
    }
)
