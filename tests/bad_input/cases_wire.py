"""Items 1 to 13: frames, headers and bodies that break the wire format.

Nothing here gets as far as a handler, except where the wire format is kept and only looks odd: such
requests are answered, and the table says so.
"""

import random
from collections.abc import Iterator
from itertools import chain

from penstock.broker.handlers import HANDLERS
from penstock.core.limits import (
    CONTROL_FRAME_BYTES_MAX,
    ELEMENTS_PER_REQUEST_MAX,
    FRAME_BYTES_MAX,
    TAGGED_FIELDS_MAX,
)
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from tests.bad_input.case import CLOSED, MEBIBYTE, NOT_COMPARED, Case, Outcome
from tests.bad_input.wire import (
    compact_string,
    frame,
    int16,
    int32,
    request,
    string,
    tags,
    varint,
)

METADATA_V12_NO_TOPICS = b"\x01" + b"\x00\x00" + b"\x00"
"""An empty array, two booleans, no tags."""

LAX_TAGS = "Kafka lets tags repeat and come in any order"
SIGNED = "Kafka reads a negative number, and takes it for none"
LAX_NULL = "Kafka takes any negative length for null"
LAX_TEXT = "Kafka puts replacement characters for bytes that are not UTF-8"
LATE_BOUND = "Kafka bounds all requests by 100 MiB, so it waits for the rest"
OWN_BOUND = "a bound of ours: Python objects cost more than bytes"


def frames() -> Iterator[Case]:
    """Items 1 to 3, 5 and 6: lengths that lie, frames that end, other protocols."""
    for number in (-1, -(2**31), -2, -(2**31) + 1):
        yield Case(item=1, name=f"length {number}", data=int32(number), expected=CLOSED)
    for number in range(10):
        yield Case(
            item=2,
            name=f"length {number}",
            data=int32(number) + bytes(number),
            expected=CLOSED,
        )
    yield Case(item=3, name="2 GiB claimed", data=int32(2**31 - 1) + bytes(10), expected=CLOSED)
    produce = int16(ApiKey.PRODUCE) + int16(9) + bytes(8)
    yield Case(
        item=3,
        name="Produce of 100 MiB and 1 byte",
        data=int32(FRAME_BYTES_MAX + 1) + produce,
        expected=CLOSED,
    )
    for key in sorted(set(HANDLERS) - {ApiKey.PRODUCE}):
        yield Case(
            item=3,
            name=f"{ApiKey(key).name} of 2 MiB and 1 byte",
            data=int32(CONTROL_FRAME_BYTES_MAX + 1) + int16(key) + bytes(8),
            expected=CLOSED,
            kafka=NOT_COMPARED,
            why=LATE_BOUND,
        )
    yield from cut_frames()
    yield from other_protocols()


def cut_frames() -> Iterator[Case]:
    """Item 5: a frame that ends with FIN before its end."""
    whole = request(ApiKey.METADATA, 12, METADATA_V12_NO_TOPICS)
    for kept in (0, 1, 3, 4, 6, 12, len(whole) - 1):
        yield Case(
            item=5,
            name=f"{kept} bytes of {len(whole)}",
            data=whole[:kept],
            finishes=True,
            expected=CLOSED,
        )
    yield Case(
        item=5,
        name="a whole request and half a one",
        data=whole + whole[:9],
        finishes=True,
        expected=ErrorCode.NONE,
    )
    large = int32(FRAME_BYTES_MAX) + int16(ApiKey.PRODUCE) + int16(9) + bytes(200_000)
    yield Case(
        item=5,
        name="200 KB of a Produce of 100 MiB",
        data=large,
        finishes=True,
        expected=CLOSED,
    )


def other_protocols() -> Iterator[Case]:
    """Item 6: what arrives on any open port."""
    strangers = {
        "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "HTTP POST": b"POST /topics HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd",
        "TLS ClientHello": bytes.fromhex("1603010200010001fc0303") + bytes(506),
        "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
        "SMTP": b"EHLO localhost\r\n",
        "Redis": b"*1\r\n$4\r\nPING\r\n",
        "PROXY protocol": b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
    }
    for name, data in strangers.items():
        yield Case(item=6, name=name, data=data, expected=CLOSED)
    for seed in range(8):
        data = random.Random(seed).randbytes(300)
        yield Case(item=6, name=f"noise {seed}", data=data, finishes=True, expected=CLOSED)


def apis() -> Iterator[Case]:
    """Items 7 and 8: APIs and versions that nobody serves."""
    for key in (9999, -1, 32767, -32768, 4, 5, 6, 7, 52):
        yield Case(item=7, name=f"API key {key}", data=request(key, 0, bytes(16)), expected=CLOSED)
    for key in (ApiKey.DESCRIBE_ACLS, ApiKey.SHARE_FETCH, ApiKey.DESCRIBE_CLIENT_QUOTAS):
        yield Case(
            item=7,
            name=f"{key.name}, not served yet",
            data=request(key, 5, bytes(16)),
            expected=CLOSED,
            kafka=NOT_COMPARED,
            why="Kafka serves it",
        )
    for key, handler in HANDLERS.items():
        if key != ApiKey.API_VERSIONS:
            lowest, highest = handler.versions.lowest, handler.versions.highest
            for version in sorted({-1, -32768, lowest - 1, highest + 1, 32767}):
                yield Case(
                    item=8,
                    name=f"{ApiKey(key).name} v{version}",
                    data=request(key, version, bytes(16)),
                    expected=CLOSED,
                )
    for version in (-1, -32768, 5, 99, 32767):
        yield Case(
            item=8,
            name=f"API_VERSIONS v{version}",
            data=request(ApiKey.API_VERSIONS, version, b"\xff" * 5),
            expected=ErrorCode.UNSUPPORTED_VERSION,
        )


def tagged_fields() -> Iterator[Case]:
    """Items 9 and 12: tags and varints, in the header and in the body."""
    sections: list[tuple[str, bytes, bool, str]] = [
        ("2^31 tags", varint(2**31), False, SIGNED),
        ("2^32-1 tags", varint(2**32 - 1), False, SIGNED),
        ("3 tags in 4 bytes", b"\x03\x00\x00\x01\x00", False, ""),
        ("a tag that repeats", tags((5, b"a"), (5, b"b")), False, LAX_TAGS),
        ("tags that descend", tags((6, b"a"), (5, b"b")), False, LAX_TAGS),
        ("a tag longer than the message", b"\x01\x05\xe8\x07" + b"a", False, ""),
        ("a tag of 2^31-1 bytes", b"\x01\x05" + varint(2**31 - 1) + b"a", False, ""),
        ("a varint of 6 bytes", b"\x80" * 5 + b"\x00", False, ""),
        ("a varint of 200 bytes", b"\xff" * 200, False, ""),
        ("a varint of 33 bits", b"\x80\x80\x80\x80\x10", False, "Kafka drops the surplus bits"),
        (
            f"{TAGGED_FIELDS_MAX + 1} tags",
            tags(*((number + 100, b"") for number in range(TAGGED_FIELDS_MAX + 1))),
            False,
            OWN_BOUND,
        ),
        ("unknown tags", tags((100, b"a"), (101, b""), (2**31 - 1, b"bc")), True, ""),
    ]
    for name, section, is_taken, why in sections:
        item = 12 if "varint" in name else 9
        kafka = ErrorCode.NONE if why else None
        expected: Outcome = ErrorCode.NONE if is_taken else CLOSED
        in_header = request(ApiKey.METADATA, 12, METADATA_V12_NO_TOPICS, header_tags=section)
        in_body = request(ApiKey.METADATA, 12, METADATA_V12_NO_TOPICS[:-1] + section)
        yield Case(
            item=item,
            name=f"header, {name}",
            data=in_header,
            expected=expected,
            kafka=kafka,
            why=why,
        )
        yield Case(
            item=item, name=f"body, {name}", data=in_body, expected=expected, kafka=kafka, why=why
        )


def lengths() -> Iterator[Case]:
    """Items 10 and 11: arrays that announce more than they hold, or hold too much."""
    create_v2 = int32(1000) + b"\x00"
    for number in (2**31 - 1, 2**24, 3):
        yield Case(
            item=10,
            name=f"Metadata of {number} topics in 10 bytes",
            data=request(ApiKey.METADATA, 1, int32(number) + bytes(3)),
            expected=CLOSED,
        )
    yield Case(
        item=10,
        name="compact array of 2^32-2 in 10 bytes",
        data=request(ApiKey.METADATA, 12, varint(2**32 - 1) + bytes(10)),
        expected=CLOSED,
        kafka=ErrorCode.NONE,
        why=SIGNED,
    )
    for number in (-2, -(2**31)):
        yield Case(
            item=10,
            name=f"nullable array of length {number}",
            data=request(ApiKey.METADATA, 1, int32(number)),
            expected=CLOSED,
            kafka=ErrorCode.NONE,
            why=LAX_NULL,
        )
        yield Case(
            item=10,
            name=f"array of length {number}",
            data=request(ApiKey.CREATE_TOPICS, 2, int32(number) + create_v2),
            expected=CLOSED,
        )
    yield Case(
        item=10,
        name="null where the schema has none",
        data=request(ApiKey.CREATE_TOPICS, 5, b"\x00" + int32(1000) + b"\x00\x00"),
        expected=CLOSED,
    )
    yield Case(
        item=11,
        name="30 MB of small elements",
        data=int32(30_000_000) + int16(ApiKey.METADATA) + int16(1) + bytes(4_096),
        expected=CLOSED,
        kafka=NOT_COMPARED,
        why=LATE_BOUND,
    )
    for key, version, element in (
        (ApiKey.METADATA, 1, int16(0)),
        (ApiKey.DELETE_TOPICS, 1, int16(0)),
        (ApiKey.DESCRIBE_CONFIGS, 1, b"\x02" + int16(0) + int32(-1)),
    ):
        yield Case(
            item=11,
            name=f"{key.name} of {ELEMENTS_PER_REQUEST_MAX + 1} elements",
            data=request(
                key,
                version,
                int32(ELEMENTS_PER_REQUEST_MAX + 1) + element * (ELEMENTS_PER_REQUEST_MAX + 1),
            ),
            expected=CLOSED,
            kafka=NOT_COMPARED,
            why=OWN_BOUND,
            memory_bytes_max=64 * MEBIBYTE,
        )


def texts() -> Iterator[Case]:
    """Item 13: text that is none, and bytes behind the end."""
    for name, data in (
        ("high bytes", b"\xff\xfe"),
        ("a cut letter", b"a\xc3"),
        ("surrogate", b"\xed\xa0\x80"),
    ):
        yield Case(
            item=13,
            name=f"client id, {name}",
            data=request(ApiKey.METADATA, 1, int32(0), client_id=data),
            expected=CLOSED,
            kafka=ErrorCode.NONE,
            why=LAX_TEXT,
        )
        yield Case(
            item=13,
            name=f"topic, {name}",
            data=request(ApiKey.METADATA, 1, int32(1) + string(data)),
            expected=CLOSED,
            kafka=ErrorCode.INVALID_TOPIC_EXCEPTION,
            why=LAX_TEXT,
        )
    yield Case(
        item=13,
        name="NUL in a topic",
        data=request(ApiKey.METADATA, 1, int32(1) + string(b"a\x00b")),
        expected=ErrorCode.INVALID_TOPIC_EXCEPTION,
    )
    sizes: list[tuple[int, Outcome]] = [
        (32_767, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (32_768, CLOSED),
    ]
    for size, expected in sizes:
        body = b"\x02" + bytes(16) + compact_string(b"n" * size) + b"\x00" + b"\x00\x00\x00"
        yield Case(
            item=13,
            name=f"compact string of {size} bytes",
            data=request(ApiKey.METADATA, 12, body),
            expected=expected,
        )
    for length in (-2, -32_768, 12_000):
        yield Case(
            item=13,
            name=f"topic of length {length}",
            data=request(ApiKey.METADATA, 1, int32(1) + int16(length) + b"abc"),
            expected=CLOSED,
        )
        head = int16(ApiKey.METADATA) + int16(1) + int32(7)
        yield Case(
            item=13,
            name=f"client id of length {length}",
            data=frame(head + int16(length) + bytes(4)),
            expected=CLOSED,
            kafka=ErrorCode.NONE if length < 0 else None,
            why=LAX_NULL if length < 0 else "",
        )
    for version, body in ((1, int32(0)), (12, METADATA_V12_NO_TOPICS)):
        yield Case(
            item=13,
            name=f"bytes behind the end of Metadata v{version}",
            data=request(ApiKey.METADATA, version, body + b"\xff" * 99),
            expected=ErrorCode.NONE,
        )


CASES: list[Case] = list(chain(frames(), apis(), tagged_fields(), lengths(), texts()))
