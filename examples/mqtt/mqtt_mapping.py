"""What becomes of a message and of a record: topics, keys, headers. No IO, no package of others.

Guarantees: a message has at most one route, since overlapping filters are refused; no route down
can feed a route up. The bridge's own headers start with `mqtt.` and come before user properties.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

TEXT_BYTES_MAX: Final = 65_535
"""The length of a topic or property in MQTT has two bytes."""
PROPERTIES_MAX: Final = 100
"""Of one message; the device chooses their number."""
WILDCARDS: Final = ("+", "#")
_NOT_CHARACTERS: Final = "".join(
    chr(plane << 16 | end) for plane in range(17) for end in (0xFFFE, 0xFFFF)
)
_FORBIDDEN: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_NOT_CHARACTERS}]")
"""Mosquitto ends the connection of a client that sends these characters in topics or properties."""

Header = tuple[str, bytes | None]


class MappingError(ValueError):
    """A filter, a template or a record that MQTT does not allow."""


@dataclass(frozen=True, slots=True)
class UpRoute:
    """Messages that match `filter` become records of `topic`."""

    filter: str
    topic: str


@dataclass(frozen=True, slots=True)
class DownRoute:
    """Records of `topic` become messages to `mqtt_topic`, where `{key}` is the record's key."""

    topic: str
    mqtt_topic: str
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A message of MQTT 5, as far as the bridge needs it."""

    topic: str
    payload: bytes
    is_duplicate: bool = False
    """The DUP flag: Mosquitto sent this message before and has no acknowledgement."""
    is_retained: bool = False
    content_type: str | None = None
    user_properties: Sequence[tuple[str, str]] = ()
    response_topic: str | None = None
    correlation: bytes | None = None


def check_filter(text: str) -> None:
    """Raise `MappingError` if a topic filter is not one of MQTT."""
    levels = text.split("/")
    for number, level in enumerate(levels):
        has_wildcard = any(one in level for one in WILDCARDS)
        if has_wildcard and level not in WILDCARDS:
            raise MappingError(f"filter '{text}': a wildcard must be a whole level, not '{level}'")
        if level == "#" and number != len(levels) - 1:
            raise MappingError(f"filter '{text}': '#' must be the last level")
    if not text or "\0" in text or text.startswith("$"):
        raise MappingError(
            f"filter '{text}' is empty, has a NUL or starts with '$': write a plain filter"
        )


def overlap(one: str, other: str) -> bool:
    """Return whether a topic can match both filters."""
    first, second = one.split("/"), other.split("/")
    for left, right in zip(first, second, strict=False):
        if "#" in (left, right):
            return True
        if left != right and "+" not in (left, right):
            return False
    longer = max(first, second, key=len)
    shorter_length = min(len(first), len(second))
    # "a/#" matches "a" too.
    return len(first) == len(second) or longer[shorter_length:] == ["#"]


def matches(topic: str, wanted: str) -> bool:
    """Return whether a topic matches a filter; a topic has no wildcards."""
    return overlap(topic, wanted)


def is_answered(response_topic: str | None, allowed: str) -> bool:
    """Return whether a message gets a receipt; the device chooses the response topic."""
    if not response_topic or not allowed or not is_text(response_topic):
        return False
    if any(one in response_topic for one in WILDCARDS):
        return False
    return matches(response_topic, allowed)


def is_text(text: str) -> bool:
    """Return whether MQTT allows a text as topic or property."""
    return _FORBIDDEN.search(text) is None and len(text.encode()) <= TEXT_BYTES_MAX


def filter_of_template(template: str) -> str:
    """Return a filter that matches each topic of a template; a key may have levels of its own."""
    levels = template.split("/")
    for number, level in enumerate(levels):
        if "{key}" in level:
            return "/".join([*levels[:number], "#"])
    return template


def check_routes(up: Iterable[UpRoute], down: Iterable[DownRoute]) -> None:
    """Raise `MappingError` for wrong filters, two routes for a message, or a loop."""
    seen: list[str] = []
    for route in up:
        check_filter(route.filter)
        for earlier in seen:
            if overlap(route.filter, earlier):
                raise MappingError(
                    f"filters '{earlier}' and '{route.filter}' overlap: a message would be stored "
                    "twice; write filters that exclude each other"
                )
        seen.append(route.filter)
    topics: set[str] = set()
    for one in down:
        if one.topic in topics:
            raise MappingError(
                f"the topic '{one.topic}' has two routes down, and one committed offset; run a "
                "second bridge with another group"
            )
        topics.add(one.topic)
        if any(wildcard in one.mqtt_topic for wildcard in WILDCARDS) or not one.mqtt_topic:
            raise MappingError(f"mqtt_topic '{one.mqtt_topic}' is empty or has a wildcard")
        for wanted in seen:
            if overlap(filter_of_template(one.mqtt_topic), wanted):
                raise MappingError(
                    f"mqtt_topic '{one.mqtt_topic}' can match the filter '{wanted}': records would "
                    "circulate; publish below another level"
                )


def route_of(topic: str, routes: Iterable[UpRoute]) -> UpRoute | None:
    """Return the route of a message."""
    return next((one for one in routes if matches(topic, one.filter)), None)


def headers_of(message: Message) -> tuple[Header, ...]:
    """Return the headers of the record of a message."""
    headers: list[Header] = []
    if message.is_duplicate:
        headers.append(("mqtt.dup", b"1"))
    if message.is_retained:
        headers.append(("mqtt.retain", b"1"))
    if message.content_type is not None:
        headers.append(("content-type", message.content_type.encode()))
    properties = message.user_properties
    if len(properties) > PROPERTIES_MAX:
        headers.append(("mqtt.left_out", b"%d" % (len(properties) - PROPERTIES_MAX)))
    headers += [(name, value.encode()) for name, value in properties[:PROPERTIES_MAX]]
    return tuple(headers)


def topic_of(template: str, key: bytes | None) -> str:
    """Return the topic of the message of a record; raise `MappingError` if MQTT forbids it."""
    if "{key}" not in template:
        return template
    if not key:
        raise MappingError("the record has no key, and mqtt_topic needs one")
    try:
        text = key.decode()
    except UnicodeDecodeError:
        raise MappingError(f"the key {key[:40]!r} is not UTF-8") from None
    topic = template.replace("{key}", text)
    if len(topic.encode()) > TEXT_BYTES_MAX:
        raise MappingError(f"the topic has more than {TEXT_BYTES_MAX:,} bytes")
    if any(one in text for one in WILDCARDS) or not is_text(text):
        raise MappingError(f"the key {text[:40]!r} has a character that MQTT forbids in topics")
    return topic


def properties_of(headers: Iterable[Header]) -> tuple[str | None, list[tuple[str, str]]]:
    """Return content type and user properties of the message of a record.

    MQTT has text only: a header that is no text of MQTT is left out.
    """
    content_type: str | None = None
    properties: list[tuple[str, str]] = []
    for name, value in headers:
        try:
            text = (value or b"").decode()
        except UnicodeDecodeError:
            continue
        if not is_text(name) or not is_text(text):
            continue
        if name == "content-type" and content_type is None:
            content_type = text
        else:
            properties.append((name, text))
    return content_type, properties
