"""Items 25 to 27: requests that are well formed and ask for impossible or forbidden things.

Names that would leave a directory or forge a line of the log, numbers at the ends of their range,
and requests for far too much. Each is answered with a code; nothing is created, and nothing is said
to others.
"""

from collections.abc import Iterator
from itertools import chain

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.bad_input.batches import DOTTED, VICTIM, good, produce
from tests.bad_input.case import CLOSED, NOT_COMPARED, Case
from tests.bad_input.wire import int32, request, string, well_formed

INVALID_TOPIC = ErrorCode.INVALID_TOPIC_EXCEPTION
UNKNOWN_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
INT32_MAX = 2**31 - 1

BAD_NAMES = {
    "dots": "..",
    "dot": ".",
    "empty": "",
    "slash": "a/b",
    "parent": "../../etc",
    "absolute": "/etc/passwd",
    "NUL": "a\0b",
    "250 characters": "n" * 250,
    "32 KB": "n/" * 16_383,
    "Unicode": "tópico",
    "right-to-left": "a\u202eb",
    "newline": "a\n2026-01-01 00:00:00,000 CRITICAL penstock: forged",
    "lookup": "${jndi:ldap://127.0.0.1/a}",
    "format": "%s%n{0.__class__}",
    "blank": "a b",
    "backslash": "a\\..\\b",
}


def create(
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: tuple[tuple[str, str | None], ...] = (),
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = (),
    times: int = 1,
) -> CreateTopicsRequest:
    """A request for one topic, perhaps several times."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs),
    )
    return CreateTopicsRequest(topics=(topic,) * times, timeout_ms=5_000, validate_only=False)


def fetch(
    *,
    topic: str = VICTIM,
    partition: int = 0,
    offset: int = 0,
    bytes_max: int = 1_000,
    bytes_min: int = 0,
    wait_ms: int = 0,
    session: tuple[int, int] = (0, -1),
    replica_id: int = -1,
    version: int = 12,
) -> bytes:
    """A Fetch of one partition."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    message = FetchRequest(
        replica_id=replica_id,
        replica_state=ReplicaState(),
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        session_id=session[0],
        session_epoch=session[1],
        topics=(FetchTopic(topic=topic, topic_id=None, partitions=(asked,)),),
        forgotten_topics_data=(),
    )
    return well_formed(message, version)


def list_offsets(topic: str, partition: int, timestamp: int = -1) -> bytes:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    message = ListOffsetsRequest(
        replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=(asked,)),)
    )
    return well_formed(message, 6)


def names() -> Iterator[Case]:
    """Item 25: topic names in every request that takes one."""
    for kind, name in BAD_NAMES.items():
        messages: dict[str, tuple[bytes, ErrorCode]] = {
            "CreateTopics": (well_formed(create(name), 5), INVALID_TOPIC),
            "Metadata": (
                well_formed(MetadataRequest(topics=(MetadataRequestTopic(name=name),)), 9),
                INVALID_TOPIC,
            ),
            "Produce": (produce(good(), topic=name), UNKNOWN_PARTITION),
            "Fetch": (fetch(topic=name), UNKNOWN_PARTITION),
            "ListOffsets": (list_offsets(name, 0), UNKNOWN_PARTITION),
            "DeleteTopics": (
                well_formed(
                    DeleteTopicsRequest(
                        topics=(DeleteTopicState(name=name, topic_id=None),), timeout_ms=5_000
                    ),
                    6,
                ),
                UNKNOWN_PARTITION,
            ),
            "DescribeConfigs": (describe_configs(2, name), INVALID_TOPIC),
        }
        for api, (data, expected) in messages.items():
            is_mute = kind == "32 KB" and api in ("CreateTopics", "DescribeConfigs")
            yield Case(
                item=25,
                name=f"{api}, {kind}",
                data=data,
                expected=expected,
                kafka=ErrorCode.UNKNOWN_SERVER_ERROR if is_mute else None,
                why="Kafka's text repeats the name and does not fit its answer" if is_mute else "",
            )
    yield Case(
        item=25,
        name="a name that differs by a dot only",
        data=well_formed(create(DOTTED.replace("_", ".")), 5),
        expected=INVALID_TOPIC,
    )


def describe_configs(kind: int, name: str) -> bytes:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    return well_formed(DescribeConfigsRequest(resources=(resource,)), 4)


def numbers() -> Iterator[Case]:
    """Item 25: partitions that are not there, and identifiers that want to be something else."""
    for partition in (-1, 1, INT32_MAX, -(2**31)):
        epoch = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=(
                OffsetForLeaderTopic(
                    topic=VICTIM,
                    partitions=(OffsetForLeaderPartition(partition=partition, leader_epoch=0),),
                ),
            ),
        )
        for api, data in (
            ("Produce", produce(good(), partition=partition)),
            ("Fetch", fetch(partition=partition)),
            ("ListOffsets", list_offsets(VICTIM, partition)),
            ("OffsetForLeaderEpoch", well_formed(epoch, 4)),
        ):
            yield Case(
                item=25, name=f"{api}, partition {partition}", data=data, expected=UNKNOWN_PARTITION
            )
    for name, client_id in (
        ("path", b"../../../etc/passwd"),
        ("newline", b"a\n2026-01-01 00:00:00,000 CRITICAL penstock: forged"),
        ("lookup", b"${jndi:ldap://127.0.0.1/a}"),
        ("format", b"%s%s%n{0}"),
        ("32 KB", b"c" * 32_767),
        ("empty", b""),
    ):
        yield Case(
            item=25,
            name=f"client id, {name}",
            data=request(ApiKey.METADATA, 1, int32(0), client_id=client_id),
            expected=ErrorCode.NONE,
        )
        yield Case(
            item=25,
            name=f"client id, {name}, on a request that is closed",
            data=request(ApiKey.METADATA, 1, int32(1), client_id=client_id),
            expected=CLOSED,
        )
    for name in ("../../x", "a\nforged", "${jndi:ldap://127.0.0.1/a}", "t" * 32_000):
        message = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000)
        yield Case(
            item=25,
            name=f"transactional id {name[:8]!r}",
            data=well_formed(message, 4),
            expected=ErrorCode.NOT_COORDINATOR,
            kafka=NOT_COMPARED,
            why="nobody asked for a coordinator before, so there is none",
        )


def creations() -> Iterator[Case]:
    """Item 26: topics that are too large, too many, or not what they say."""
    policy = ErrorCode.POLICY_VIOLATION
    own = "a bound of ours; Kafka tries it"
    rows: list[tuple[str, CreateTopicsRequest, ErrorCode, str]] = [
        ("10^6 partitions", create("n", partitions=1_000_000), policy, own),
        ("2^31-1 partitions", create("n", partitions=INT32_MAX), policy, own),
        ("0 partitions", create("n", partitions=0), ErrorCode.INVALID_PARTITIONS, ""),
        ("-2 partitions", create("n", partitions=-2), ErrorCode.INVALID_PARTITIONS, ""),
        (
            "replication factor 32767",
            create("n", replication_factor=32_767),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "",
        ),
        (
            "replication factor 0",
            create("n", replication_factor=0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "",
        ),
        (
            "replication factor -2",
            create("n", replication_factor=-2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "",
        ),
        ("the same name twice", create("n", times=2), ErrorCode.INVALID_REQUEST, ""),
        (
            "the same name 9000 times",
            create("n", times=9_000),
            ErrorCode.INVALID_REQUEST,
            "a network thread of Kafka is lost to it",
        ),
        (
            "broker that is not there",
            create("n", partitions=-1, replication_factor=-1, assignments=((0, (99,)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "",
        ),
        (
            "assignment of partition 5 only",
            create("n", partitions=-1, replication_factor=-1, assignments=((5, (1,)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "",
        ),
        (
            "assignment and a number",
            create("n", assignments=((0, (1,)),)),
            ErrorCode.INVALID_REQUEST,
            "",
        ),
    ]
    for name, message, expected, why in rows:
        yield Case(
            item=26,
            name=name,
            data=well_formed(message, 5),
            expected=expected,
            kafka=NOT_COMPARED if why else None,
            why=why,
        )
    yield from configs()


def configs() -> Iterator[Case]:
    """Item 26: topic settings that are unknown, or that name files and classes."""
    rows: list[tuple[str, str, str | None]] = [
        ("unknown", "no.such.config", "1"),
        ("unknown, 32 KB", "c" * 32_000, "1"),
        ("path for a number", "retention.ms", "/etc/passwd"),
        ("32 KB for a number", "retention.ms", "9" * 32_000),
        ("path for a word", "cleanup.policy", "../../etc"),
        ("class", "compression.type", "java.lang.Runtime"),
        ("provider", "segment.bytes", "${file:/etc/passwd:root}"),
        ("beyond 64 bits", "retention.ms", str(2**63)),
        ("below its range", "segment.bytes", "-1"),
        ("newline", "retention.ms", "1\n2"),
    ]
    for name, key, value in rows:
        yield Case(
            item=26,
            name=f"config, {name}",
            data=well_formed(create("n", configs=((key, value),)), 5),
            expected=ErrorCode.INVALID_CONFIG,
        )


def fetches() -> Iterator[Case]:
    """Item 27: byte limits, waits, offsets and sessions out of their range."""
    for bytes_max in (-1, 0, -(2**31), INT32_MAX):
        yield Case(
            item=27,
            name=f"max_bytes {bytes_max}",
            data=fetch(bytes_max=bytes_max),
            expected=ErrorCode.NONE,
            kafka=ErrorCode.UNKNOWN_SERVER_ERROR if bytes_max < 0 else None,
            why="Kafka has no code for it" if bytes_max < 0 else "",
        )
    yield Case(
        item=27,
        name="min_bytes above max_bytes",
        data=fetch(bytes_min=INT32_MAX, bytes_max=1, wait_ms=1),
        expected=ErrorCode.NONE,
    )
    for wait_ms in (-1, -(2**31)):
        yield Case(
            item=27,
            name=f"max_wait {wait_ms}",
            data=fetch(bytes_min=INT32_MAX, wait_ms=wait_ms),
            expected=ErrorCode.NONE,
        )
    for offset in (-1, -5, -(2**63), 1_000_000, 2**63 - 1):
        yield Case(
            item=27,
            name=f"offset {offset}",
            data=fetch(offset=offset, wait_ms=INT32_MAX, bytes_min=1),
            expected=ErrorCode.OFFSET_OUT_OF_RANGE,
        )
    for session, expected in (
        ((12_345, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ((-1, 5), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ((INT32_MAX, INT32_MAX), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ((0, 3), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ((0, -7), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ):
        is_last = session == (INT32_MAX, INT32_MAX)
        yield Case(
            item=27,
            name=f"session {session}",
            data=fetch(session=session),
            expected=expected,
            kafka=ErrorCode.UNKNOWN_SERVER_ERROR if is_last else None,
            why="Kafka fails on the epoch behind the last one" if is_last else "",
        )
    head = int32(-1) + int32(0) + int32(0) + int32(1_000) + b"\x00"
    topic = int32(1) + string(VICTIM.encode()) + int32(1_000_000)
    yield Case(
        item=27,
        name="10^6 partitions",
        data=request(ApiKey.FETCH, 4, head + topic + bytes(1_000)),
        expected=CLOSED,
    )
    yield Case(
        item=27,
        name="as a replica",
        data=fetch(replica_id=1),
        expected=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        kafka=NOT_COMPARED,
        why="without an authorizer Kafka lets anybody fetch as a replica",
    )
    for timestamp in (-7, -(2**63)):
        yield Case(
            item=27,
            name=f"ListOffsets at {timestamp}",
            data=list_offsets(VICTIM, 0, timestamp),
            expected=ErrorCode.UNSUPPORTED_VERSION,
            kafka=NOT_COMPARED,
            why="Kafka looks for a record at that time",
        )


CASES: list[Case] = list(chain(names(), numbers(), creations(), fetches()))
