"""Settings of groups, offsets and transactions, with Kafka 4.3's defaults; a part of `settings`."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.core import limits
from penstock.core.settings.settings_section import Section
from penstock.core.settings.share_group_settings import ShareGroupsSettings


class GroupsSettings(ShareGroupsSettings):
    """Consumer groups and their offsets, and share groups."""

    offsets_partitions: Annotated[
        int,
        Field(
            ge=1,
            le=limits.PARTITIONS_PER_TOPIC_MAX,
            description="Partitions of `__consumer_offsets`, which is created when the first group "
            "comes; not to be changed afterwards.",
            json_schema_extra={"unit": "partitions", "kafka": "offsets.topic.num.partitions"},
        ),
    ] = 50
    offsets_segment_bytes: Annotated[
        int,
        Field(
            ge=1048576,
            le=2**31 - 1,
            description="Segment size of `__consumer_offsets`: small, so that it is compacted and "
            "read fast.",
            json_schema_extra={"unit": "bytes", "kafka": "offsets.topic.segment.bytes"},
        ),
    ] = 104_857_600
    offsets_retention_minutes: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Offsets are forgotten when their group was empty for this long.",
            json_schema_extra={
                "unit": "minutes",
                "kafka": "offsets.retention.minutes",
                "live": True,
            },
        ),
    ] = 10_080
    offsets_retention_check_interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Time between two looks for offsets to forget.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "offsets.retention.check.interval.ms",
                "live": True,
            },
        ),
    ] = 600_000
    offset_metadata_bytes_max: Annotated[
        int,
        Field(
            ge=0,
            le=32_767,
            description="Longest text that a client may keep with an offset.",
            json_schema_extra={"unit": "bytes", "kafka": "offset.metadata.max.bytes", "live": True},
        ),
    ] = 4_096
    initial_rebalance_delay_ms: Annotated[
        int,
        Field(
            ge=0,
            le=2**31 - 1,
            description="A new classic group waits this long for more members.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.initial.rebalance.delay.ms",
                "live": True,
            },
        ),
    ] = 3_000
    session_timeout_ms_min: Annotated[
        int,
        Field(
            ge=0,
            le=2**31 - 1,
            description="Shortest session timeout of a classic member.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.min.session.timeout.ms",
                "live": True,
            },
        ),
    ] = 6_000
    session_timeout_ms_max: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Longest session timeout of a classic member.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.max.session.timeout.ms",
                "live": True,
            },
        ),
    ] = 1_800_000
    members_max: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Members of one classic group.",
            json_schema_extra={"unit": "members", "kafka": "group.max.size", "live": True},
        ),
    ] = 2**31 - 1
    consumer_session_timeout_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="A member of a consumer group that is silent for this long is removed.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.consumer.session.timeout.ms",
                "live": True,
            },
        ),
    ] = 45_000
    consumer_session_timeout_ms_min: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Shortest session timeout that a single group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.consumer.min.session.timeout.ms",
                "live": True,
            },
        ),
    ] = 45_000
    consumer_session_timeout_ms_max: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Longest session timeout that a single group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.consumer.max.session.timeout.ms",
                "live": True,
            },
        ),
    ] = 60_000
    consumer_heartbeat_interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Time between two heartbeats of a member of a consumer group.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.consumer.heartbeat.interval.ms",
                "live": True,
            },
        ),
    ] = 5_000
    consumer_heartbeat_interval_ms_min: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Shortest heartbeat interval that a single group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.consumer.min.heartbeat.interval.ms",
                "live": True,
            },
        ),
    ] = 5_000
    consumer_heartbeat_interval_ms_max: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Longest heartbeat interval that a single group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.consumer.max.heartbeat.interval.ms",
                "live": True,
            },
        ),
    ] = 15_000
    consumer_assignment_interval_ms: Annotated[
        int,
        Field(
            ge=0,
            le=15_000,
            description="Least time between two target assignments of a consumer group, so that a "
            "crowd that joins costs one computation; 0: one for each change.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.consumer.assignment.interval.ms",
                "live": True,
            },
        ),
    ] = 1_000
    consumer_regex_refresh_interval_ms: Annotated[
        int,
        Field(
            ge=10_000,
            le=2**31 - 1,
            description="Time after which a regular expression that a consumer group subscribes to "
            "is resolved again, for changed permissions.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.consumer.regex.refresh.interval.ms",
                "live": True,
            },
        ),
    ] = 600_000
    consumer_assignment_interval_ms_min: Annotated[
        int,
        Field(
            ge=0,
            le=15_000,
            description="Shortest assignment interval that a single group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.consumer.min.assignment.interval.ms",
                "live": True,
            },
        ),
    ] = 0
    consumer_assignment_interval_ms_max: Annotated[
        int,
        Field(
            ge=0,
            le=15_000,
            description="Longest assignment interval that a single group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.consumer.max.assignment.interval.ms",
                "live": True,
            },
        ),
    ] = 15_000
    consumer_members_max: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Members of one consumer group.",
            json_schema_extra={"unit": "members", "kafka": "group.consumer.max.size", "live": True},
        ),
    ] = 2**31 - 1
    consumer_migration_policy: Annotated[
        Literal["bidirectional", "upgrade", "downgrade", "disabled"],
        Field(
            description="Whether a live group may change between the classic and the consumer "
            "protocol.",
            json_schema_extra={"kafka": "group.consumer.migration.policy", "live": True},
        ),
    ] = "bidirectional"


class TransactionsSettings(Section):
    """Transactions of producers."""

    state_partitions: Annotated[
        int,
        Field(
            ge=1,
            le=limits.PARTITIONS_PER_TOPIC_MAX,
            description="Partitions of `__transaction_state`, which is created when the first "
            "transactional producer comes; not to be changed afterwards.",
            json_schema_extra={
                "unit": "partitions",
                "kafka": "transaction.state.log.num.partitions",
            },
        ),
    ] = 50
    state_segment_bytes: Annotated[
        int,
        Field(
            ge=1048576,
            le=2**31 - 1,
            description="Segment size of `__transaction_state`.",
            json_schema_extra={"unit": "bytes", "kafka": "transaction.state.log.segment.bytes"},
        ),
    ] = 104_857_600
    timeout_ms_max: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Longest transaction timeout that a producer may ask for.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "transaction.max.timeout.ms",
                "live": True,
            },
        ),
    ] = 900_000
    timeout_check_interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Time between two looks for transactions that took too long.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "transaction.abort.timed.out.transaction.cleanup.interval.ms",
                "live": True,
            },
        ),
    ] = 10_000
    id_expiration_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="A transactional id that was not used for this long is forgotten.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "transactional.id.expiration.ms",
                "live": True,
            },
        ),
    ] = 604_800_000
    expiration_check_interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Time between two looks for transactional ids to forget.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "transaction.remove.expired.transaction.cleanup.interval.ms",
                "live": True,
            },
        ),
    ] = 3_600_000
    producer_expiration_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="A partition forgets a producer that the broker did not hear of for this"
            " long. Timestamps of records do not count.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "producer.id.expiration.ms",
                "live": True,
            },
        ),
    ] = limits.PRODUCER_EXPIRATION_MS
    producer_expiration_check_interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Time between two looks for silent producers.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "producer.id.expiration.check.interval.ms",
                "live": True,
            },
        ),
    ] = 600_000
