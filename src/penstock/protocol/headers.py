"""Request and response headers, parsed and written by hand: every request passes here.

A request header is int16 API key, int16 version, int32 correlation id and the client id, which is a
legacy nullable string in every version. Flexible versions of an API have tagged fields behind it;
none is defined yet, so they are skipped, within bounds. A response header is the correlation id,
and an empty tag section when the version is flexible, with one exception: the response to
ApiVersions never has one, because the client does not know yet which versions the broker supports
(KIP-511).

This file does NOT know which APIs are served; `connection` does.
"""

import struct
from typing import Final

from penstock.core.errors import MalformedRequestError, MalformedResponseError
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.wire import WIRE_ERRORS, read_unsigned_varint, skip_tags

REQUEST_HEADER_BYTES_MIN: Final = 10
"""Key, version, correlation id and the length of the client id."""

NEVER_FLEXIBLE: Final = 32_767
"""For APIs without flexible versions."""

FLEXIBLE_SINCE: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 6,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 6,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.SYNC_GROUP: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 3,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.DESCRIBE_ACLS: 2,
    ApiKey.CREATE_ACLS: 2,
    ApiKey.DELETE_ACLS: 2,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 2,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.CREATE_DELEGATION_TOKEN: 2,
    ApiKey.RENEW_DELEGATION_TOKEN: 2,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 2,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.VOTE: 0,
    ApiKey.BEGIN_QUORUM_EPOCH: 1,
    ApiKey.END_QUORUM_EPOCH: 1,
    ApiKey.DESCRIBE_QUORUM: 0,
    ApiKey.ALTER_PARTITION: 2,
    ApiKey.UPDATE_FEATURES: 0,
    ApiKey.ENVELOPE: 0,
    ApiKey.FETCH_SNAPSHOT: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.BROKER_REGISTRATION: 0,
    ApiKey.BROKER_HEARTBEAT: 0,
    ApiKey.UNREGISTER_BROKER: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
    ApiKey.CONTROLLER_REGISTRATION: 0,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
    ApiKey.PUSH_TELEMETRY: 0,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: 0,
    ApiKey.LIST_CONFIG_RESOURCES: 0,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
    ApiKey.SHARE_GROUP_HEARTBEAT: 1,
    ApiKey.SHARE_GROUP_DESCRIBE: 1,
    ApiKey.SHARE_FETCH: 1,
    ApiKey.SHARE_ACKNOWLEDGE: 1,
    ApiKey.ADD_RAFT_VOTER: 0,
    ApiKey.REMOVE_RAFT_VOTER: 0,
    ApiKey.UPDATE_RAFT_VOTER: 0,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE: 0,
    ApiKey.WRITE_SHARE_GROUP_STATE: 0,
    ApiKey.DELETE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 0,
    ApiKey.STREAMS_GROUP_HEARTBEAT: 0,
    ApiKey.STREAMS_GROUP_DESCRIBE: 0,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 0,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
}
"""The first flexible version of each API; a test compares it with the messages."""

_REQUEST_HEAD: Final = struct.Struct(">hhih")
_FRAME_HEAD: Final = struct.Struct(">ii")
_CORRELATION_ID: Final = struct.Struct(">i")


class RequestHead:
    """The header fields of a request, and the position of its body."""

    __slots__ = ("api_key", "api_version", "body_start", "client_id", "correlation_id")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body_start: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_start = body_start


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version of an API has tagged fields in its headers and body."""
    return version >= FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE)


def read_request_head(frame: memoryview) -> RequestHead:
    """The header of a request frame; raises `MalformedRequestError`."""
    try:
        api_key, version, correlation_id, length = _REQUEST_HEAD.unpack_from(frame)
        position = REQUEST_HEADER_BYTES_MIN
        client_id = None
        if length >= 0:
            stop = position + length
            if stop > len(frame):
                raise MalformedRequestError("a client id that is longer than its request")
            client_id = str(frame[position:stop], "utf-8")
            position = stop
        elif length != -1:
            raise MalformedRequestError("a client id of negative length")
        if version >= FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE):
            count, position = read_unsigned_varint(frame, position)
            if count:
                position = skip_tags(frame, position, len(frame), count)
    except WIRE_ERRORS as error:
        raise MalformedRequestError(f"request header: {error}") from error
    return RequestHead(api_key, version, correlation_id, client_id, position)


def write_request_head(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """The bytes of a request header."""
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    head = _REQUEST_HEAD.pack(api_key, version, correlation_id, length) + encoded
    return head + b"\x00" if is_flexible(api_key, version) else head


def has_tagged_response_header(api_key: int, version: int) -> bool:
    """Whether the response has a tag section behind the correlation id."""
    return api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version)


def write_response_frame_head(
    api_key: int, version: int, correlation_id: int, body_bytes: int
) -> bytes:
    """The frame's length and the response header, for a body of `body_bytes`."""
    flexible_since = FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE)
    if version >= flexible_since and api_key != ApiKey.API_VERSIONS:
        return _FRAME_HEAD.pack(body_bytes + 5, correlation_id) + b"\x00"
    return _FRAME_HEAD.pack(body_bytes + 4, correlation_id)


def read_correlation_id(frame: memoryview) -> int:
    """The correlation id of a response frame."""
    if len(frame) < _CORRELATION_ID.size:
        raise MalformedResponseError("a response without a header")
    correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
    return correlation_id


def response_body_start(api_key: int, version: int, frame: memoryview) -> int:
    """The position of the body of a response."""
    if not has_tagged_response_header(api_key, version):
        return _CORRELATION_ID.size
    try:
        count, position = read_unsigned_varint(frame, _CORRELATION_ID.size)
        return skip_tags(frame, position, len(frame), count)
    except WIRE_ERRORS as error:
        raise MalformedResponseError(f"response header: {error}") from error
