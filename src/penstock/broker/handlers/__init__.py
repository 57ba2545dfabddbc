"""One module for each API; this table is what ApiVersions answers from and what dispatch runs.

Versions are Kafka 4.3's for the APIs that exist here. Produce is served from version 3 on and
advertised from 0, as Kafka does: some librdkafka versions turn compression off otherwise
(KAFKA-18659). Fetch 18 and ListOffsets 11 are Kafka 4.3's highest stable versions.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.broker.dispatch import Handler
from penstock.broker.handlers import (
    api_versions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from penstock.protocol.api_keys import ApiKey

HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {
        ApiKey.PRODUCE: Handler(
            produce.handle, 3, 13, lowest_advertised=0, shortcut=produce.handle_single
        ),
        ApiKey.FETCH: Handler(fetch.handle, 4, 18),
        ApiKey.LIST_OFFSETS: Handler(list_offsets.handle, 1, 11),
        ApiKey.METADATA: Handler(metadata.handle, 0, 13),
        ApiKey.API_VERSIONS: Handler(api_versions.handle, 0, 4),
        ApiKey.CREATE_TOPICS: Handler(create_topics.handle, 2, 7),
        ApiKey.DELETE_TOPICS: Handler(delete_topics.handle, 1, 6),
        ApiKey.INIT_PRODUCER_ID: Handler(init_producer_id.handle, 0, 5),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(offset_for_leader_epoch.handle, 2, 4),
        ApiKey.DESCRIBE_CONFIGS: Handler(describe_configs.handle, 1, 4),
        ApiKey.DESCRIBE_CLUSTER: Handler(describe_cluster.handle, 0, 2),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler(describe_topic_partitions.handle, 0, 0),
    }
)
