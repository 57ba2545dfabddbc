"""The JSON payloads of the push protocol: SUBSCRIBE, COMMIT_OFFSET, ACK and DISCONNECT.

Guarantees: a payload that is not the object described here raises `PushPayloadError`, which names
the wrong field. Unknown fields are errors, so that a misspelled one is not ignored. Numbers are
bounded; texts are bounded by the frame. No message repeats a credential.

It decides nothing about a request: `edge.push.session` does.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from penstock.core.errors import PenstockError
from penstock.core.limits import ERROR_MESSAGE_CHARACTERS_MAX, OFFSETS_PER_COMMIT_MAX

CREDIT_MAX: Final = 100_000
CREDIT_DEFAULT: Final = 1_000
OFFSET_MAX: Final = 2**63 - 1
PARTITION_MAX: Final = 2**31 - 1
NAME_BYTES_MAX: Final = 32_767
PARTITIONS_MAX: Final = OFFSETS_PER_COMMIT_MAX

Mode = Literal["fanout", "queue"]
Format = Literal["record", "batch"]
Start = Literal["committed", "earliest", "latest"]
Reset = Literal["earliest", "latest"]
Vector = dict[int, int]
"""Partition to offset."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SUBSCRIBE_FIELDS: Final = frozenset(
    {
        "topic",
        "group",
        "mode",
        "from",
        "credit",
        "format",
        "auto_ack",
        "reset",
        "publish",
        "user",
        "password",
        "token",
        "unsubscribe",
    }
)


class PushPayloadError(PenstockError):
    """A payload of the push protocol that is not what its frame needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """How a client proves its identity; `repr` hides the secrets."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRequest:
    """The payload of SUBSCRIBE."""

    topic: str
    group: str | None = None
    mode: Mode | None = None
    """None: the routing of the topic decides."""
    start: Start | Vector | None = None
    """Field `from`; None: `committed` with a group, else `latest`."""
    credit: int = CREDIT_DEFAULT
    format: Format = "record"
    auto_ack: bool = False
    reset: Reset | None = None
    """Where a group without a committed offset starts; None: latest."""
    publish: bool = False
    """Whether the subscription only publishes, and gets no records."""
    credentials: Credentials | None = None
    is_unsubscribe: bool = False
    """Whether it ends the subscriptions of the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The payload of an ACK that refuses a request."""

    error: str
    code: str
    retriable: bool = False


def load_object(payload: bytes, frame: str) -> dict[str, object]:
    """Return the JSON object in a payload."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        raise PushPayloadError(f"the payload of {frame} is not JSON") from None
    if not isinstance(found, dict):
        raise PushPayloadError(f"the payload of {frame} is not a JSON object")
    return found


def read_subscribe(payload: bytes) -> SubscribeRequest:
    """Return the request in the payload of SUBSCRIBE."""
    found = load_object(payload, "SUBSCRIBE")
    unknown = sorted(found.keys() - _SUBSCRIBE_FIELDS)
    if unknown:
        raise PushPayloadError(
            f"SUBSCRIBE has the unknown field {unknown[0][:64]!r}; "
            f"known are {', '.join(sorted(_SUBSCRIBE_FIELDS))}"
        )
    credentials = _credentials(found)
    if "unsubscribe" in found:
        topic = _text(found, "unsubscribe")
        assert topic is not None
        return SubscribeRequest(topic=topic, is_unsubscribe=True, credentials=credentials)
    topic = _text(found, "topic")
    if topic is None:
        raise PushPayloadError("SUBSCRIBE has no field 'topic'")
    return SubscribeRequest(
        topic=topic,
        group=_text(found, "group"),
        mode=_choice(found, "mode", "fanout", "queue", None),  # type: ignore[arg-type]
        start=_start(found.get("from")),
        credit=_credit(found.get("credit", CREDIT_DEFAULT)),
        format=_choice(found, "format", "record", "batch", "record"),  # type: ignore[arg-type]
        auto_ack=_truth(found, "auto_ack"),
        reset=_choice(found, "reset", "earliest", "latest", None),  # type: ignore[arg-type]
        publish=_truth(found, "publish"),
        credentials=credentials,
    )


def write_subscribe(request: SubscribeRequest) -> bytes:
    """Return the payload of SUBSCRIBE; fields with their default are left out."""
    found: dict[str, object] = {}
    if request.is_unsubscribe:
        found["unsubscribe"] = request.topic
    else:
        found["topic"] = request.topic
        values = (
            ("group", request.group, None),
            ("mode", request.mode, None),
            ("from", _written_start(request.start), None),
            ("credit", request.credit, CREDIT_DEFAULT),
            ("format", request.format, "record"),
            ("auto_ack", request.auto_ack, False),
            ("reset", request.reset, None),
            ("publish", request.publish, False),
        )
        found |= {name: value for name, value, default in values if value != default}
    if request.credentials is not None:
        for name in ("user", "password", "token"):
            secret = getattr(request.credentials, name)
            if secret is not None:
                found[name] = secret
    return write_object(found)


def write_object(found: Mapping[str, object]) -> bytes:
    """Return JSON bytes without spaces."""
    return json.dumps(found, separators=(",", ":")).encode()


def write_refusal(refusal: Refusal) -> bytes:
    """Return the payload of an ACK that refuses a request."""
    return write_object(
        {
            "error": refusal.error[:ERROR_MESSAGE_CHARACTERS_MAX],
            "code": refusal.code,
            "retriable": refusal.retriable,
        }
    )


def read_commit(payload: bytes) -> dict[str, Vector]:
    """Return the offsets in the payload of COMMIT_OFFSET, by topic and partition."""
    found = load_object(payload, "COMMIT_OFFSET")
    offsets = {topic: _vector(value, f"topic {topic[:64]!r}") for topic, value in found.items()}
    count = sum(map(len, offsets.values()))
    if not 0 < count <= PARTITIONS_MAX:
        raise PushPayloadError(
            f"COMMIT_OFFSET names {count} partitions, at least 1 and at most {PARTITIONS_MAX}"
        )
    return offsets


def vector_json(vector: Mapping[int, int]) -> dict[str, int]:
    """Return partition to offset in the form of JSON, whose names are texts."""
    return {str(partition): offset for partition, offset in vector.items()}


def _credentials(found: Mapping[str, object]) -> Credentials | None:
    user, password = _text(found, "user"), _text(found, "password", CREDIT_MAX)
    token = _text(found, "token", CREDIT_MAX)
    if user is None and password is None and token is None:
        return None
    if token is not None and (user is not None or password is not None):
        raise PushPayloadError("SUBSCRIBE has a token and a user; send one of them")
    if token is None and (user is None or password is None):
        raise PushPayloadError("SUBSCRIBE has a user without a password, or the reverse")
    return Credentials(user=user, password=password, token=token)


def _text(found: Mapping[str, object], name: str, bytes_max: int = NAME_BYTES_MAX) -> str | None:
    value = found.get(name)
    if value is None and name != "unsubscribe":
        return None
    # JSON can name half a character, and a name in a stored record has at most 32,767 bytes: no
    # other part of the broker expects more.
    size_bytes = len(value.encode(errors="replace")) if isinstance(value, str) else 0
    if not isinstance(value, str) or not 0 < size_bytes <= bytes_max or _SURROGATE.search(value):
        raise PushPayloadError(f"field {name!r} is not a text of 1 to {bytes_max} bytes")
    return value


def _choice(
    found: Mapping[str, object], name: str, first: str, second: str, default: str | None
) -> str | None:
    value = found.get(name, default)
    if value not in (first, second, default):
        raise PushPayloadError(f"field {name!r} is neither {first!r} nor {second!r}")
    return value


def _truth(found: Mapping[str, object], name: str) -> bool:
    value = found.get(name, False)
    if not isinstance(value, bool):
        raise PushPayloadError(f"field {name!r} is neither true nor false")
    return value


def _credit(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= CREDIT_MAX:
        raise PushPayloadError(f"field 'credit' is not a number from 1 to {CREDIT_MAX}")
    return value


def _start(value: object) -> Start | Vector | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return _vector(value, "field 'from'")
    if value not in ("committed", "earliest", "latest"):
        raise PushPayloadError(
            "field 'from' is not committed, earliest, latest or an object of partition: offset"
        )
    return value


def _written_start(start: Start | Vector | None) -> object:
    return vector_json(start) if isinstance(start, dict) else start


def _vector(value: object, where: str) -> Vector:
    if not isinstance(value, dict) or len(value) > PARTITIONS_MAX:
        raise PushPayloadError(
            f"{where} is not an object of partition: offset with at most {PARTITIONS_MAX} entries"
        )
    vector: Vector = {}
    for name, offset in value.items():
        is_number = isinstance(name, str) and name.isascii() and name.isdigit() and len(name) <= 10
        if not is_number or int(name) > PARTITION_MAX:
            raise PushPayloadError(f"{where} has a partition that is not a number")
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= OFFSET_MAX:
            raise PushPayloadError(f"{where} has an offset that is not a number from 0")
        vector[int(name)] = offset
    return vector
