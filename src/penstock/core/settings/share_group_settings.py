"""Settings of share groups, with Kafka 4.3's names, defaults and bounds; a part of `[groups]`.

A default holds for every share group. A minimum and a maximum bound the value that a single group
may be given with `penstock group alter` or Kafka's own tools.
"""

from typing import Annotated

from pydantic import Field

from penstock.core.settings.settings_section import Section

_MOST = 2**31 - 1


class ShareGroupsSettings(Section):
    """Share groups: queues, in which each record is delivered to one member."""

    share_enabled: Annotated[
        bool,
        Field(
            description="Offer share groups to clients: the feature share.version is 1 with it, "
            "and 0 without.",
        ),
    ] = True
    share_session_timeout_ms: Annotated[
        int,
        Field(
            ge=1,
            le=_MOST,
            description="A member of a share group that is silent for this long is removed.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.session.timeout.ms",
                "live": True,
            },
        ),
    ] = 45_000
    share_session_timeout_ms_min: Annotated[
        int,
        Field(
            ge=1,
            le=_MOST,
            description="Shortest session timeout that a single share group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.min.session.timeout.ms",
                "live": True,
            },
        ),
    ] = 45_000
    share_session_timeout_ms_max: Annotated[
        int,
        Field(
            ge=1,
            le=_MOST,
            description="Longest session timeout that a single share group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.max.session.timeout.ms",
                "live": True,
            },
        ),
    ] = 60_000
    share_heartbeat_interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=_MOST,
            description="Time between two heartbeats of a member of a share group.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.heartbeat.interval.ms",
                "live": True,
            },
        ),
    ] = 5_000
    share_heartbeat_interval_ms_min: Annotated[
        int,
        Field(
            ge=1,
            le=_MOST,
            description="Shortest heartbeat interval that a single share group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.min.heartbeat.interval.ms",
                "live": True,
            },
        ),
    ] = 5_000
    share_heartbeat_interval_ms_max: Annotated[
        int,
        Field(
            ge=1,
            le=_MOST,
            description="Longest heartbeat interval that a single share group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.max.heartbeat.interval.ms",
                "live": True,
            },
        ),
    ] = 15_000
    share_assignment_interval_ms: Annotated[
        int,
        Field(
            ge=0,
            le=15_000,
            description="Least time between two target assignments of a share group, so that a "
            "crowd that joins costs one computation; 0: one for each change.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.assignment.interval.ms",
                "live": True,
            },
        ),
    ] = 1_000
    share_assignment_interval_ms_min: Annotated[
        int,
        Field(
            ge=0,
            le=15_000,
            description="Shortest assignment interval that a single share group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.min.assignment.interval.ms",
                "live": True,
            },
        ),
    ] = 0
    share_assignment_interval_ms_max: Annotated[
        int,
        Field(
            ge=0,
            le=15_000,
            description="Longest assignment interval that a single share group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.max.assignment.interval.ms",
                "live": True,
            },
        ),
    ] = 15_000
    share_members_max: Annotated[
        int,
        Field(
            ge=1,
            le=1_000,
            description="Members of one share group.",
            json_schema_extra={"unit": "members", "kafka": "group.share.max.size", "live": True},
        ),
    ] = 200
    share_record_lock_duration_ms: Annotated[
        int,
        Field(
            ge=1_000,
            le=3_600_000,
            description="Time that a member of a share group has to acknowledge a record. The "
            "record is delivered again afterwards.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.record.lock.duration.ms",
                "live": True,
            },
        ),
    ] = 30_000
    share_record_lock_duration_ms_min: Annotated[
        int,
        Field(
            ge=1_000,
            le=30_000,
            description="Shortest lock of a record that a single share group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.min.record.lock.duration.ms",
                "live": True,
            },
        ),
    ] = 15_000
    share_record_lock_duration_ms_max: Annotated[
        int,
        Field(
            ge=30_000,
            le=3_600_000,
            description="Longest lock of a record that a single share group may be given.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "group.share.max.record.lock.duration.ms",
                "live": True,
            },
        ),
    ] = 60_000
    share_delivery_count_limit: Annotated[
        int,
        Field(
            ge=2,
            le=10,
            description="Deliveries of one record to a share group. A record that no member "
            "accepts is archived after the last one.",
            json_schema_extra={
                "unit": "deliveries",
                "kafka": "group.share.delivery.count.limit",
                "live": True,
            },
        ),
    ] = 5
    share_delivery_count_limit_min: Annotated[
        int,
        Field(
            ge=2,
            le=5,
            description="Lowest delivery limit that a single share group may be given.",
            json_schema_extra={
                "unit": "deliveries",
                "kafka": "group.share.min.delivery.count.limit",
                "live": True,
            },
        ),
    ] = 2
    share_delivery_count_limit_max: Annotated[
        int,
        Field(
            ge=5,
            le=25,
            description="Highest delivery limit that a single share group may be given.",
            json_schema_extra={
                "unit": "deliveries",
                "kafka": "group.share.max.delivery.count.limit",
                "live": True,
            },
        ),
    ] = 10
    share_record_locks_max: Annotated[
        int,
        Field(
            ge=100,
            le=10_000,
            description="Records of one partition that a share group may have in flight.",
            json_schema_extra={
                "unit": "records",
                "kafka": "group.share.partition.max.record.locks",
                "live": True,
            },
        ),
    ] = 2_000
    share_record_locks_max_lowest: Annotated[
        int,
        Field(
            ge=100,
            le=2_000,
            description="Lowest number of records in flight that a single share group may be "
            "given.",
            json_schema_extra={
                "unit": "records",
                "kafka": "group.share.min.partition.max.record.locks",
                "live": True,
            },
        ),
    ] = 100
    share_record_locks_max_highest: Annotated[
        int,
        Field(
            ge=2_000,
            le=10_000,
            description="Highest number of records in flight that a single share group may be "
            "given.",
            json_schema_extra={
                "unit": "records",
                "kafka": "group.share.max.partition.max.record.locks",
                "live": True,
            },
        ),
    ] = 4_000
    share_sessions_max: Annotated[
        int,
        Field(
            ge=1,
            le=_MOST,
            description="Share sessions on this broker: one for each member that fetches here.",
            json_schema_extra={"unit": "sessions", "kafka": "group.share.max.share.sessions"},
        ),
    ] = 2_000
    dead_letter_topic_prefix: Annotated[
        str,
        Field(
            max_length=100,
            pattern=r"^[a-zA-Z0-9._-]*$",
            description="Names of dead-letter topics of share groups begin with this text; empty "
            "allows each name.",
            json_schema_extra={"kafka": "errors.deadletterqueue.topic.name.prefix", "live": True},
        ),
    ] = "dlq."
    dead_letter_auto_create: Annotated[
        bool,
        Field(
            description="Whether the broker creates a missing dead-letter topic when the first "
            "letter is written.",
            json_schema_extra={
                "kafka": "errors.deadletterqueue.auto.create.topics.enable",
                "live": True,
            },
        ),
    ] = False
