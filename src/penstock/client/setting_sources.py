"""The source of a setting's value as text, by Kafka's number (pure)."""

from collections.abc import Mapping
from typing import Final

_SOURCES: Final[Mapping[int, str]] = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "settings file",
    5: "default",
    8: "group",
}


def source_text(number: int) -> str:
    """Return the text for a source; an unknown source is its number."""
    return _SOURCES.get(number, str(number))
