"""Where the value of a setting comes from, in words, by Kafka's number (pure)."""

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
    """The words for a source; one that is not known is its number."""
    return _SOURCES.get(number, str(number))
