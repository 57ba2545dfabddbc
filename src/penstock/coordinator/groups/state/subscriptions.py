"""Reading the topics out of a classic consumer's metadata.

The consumers define the metadata; its first version is a prefix of all later ones, and only that is
read: version, then the names of topics. Metadata that cannot be decoded is not an error of ours:
the topics are then unknown. It is NOT the full codec of the embedded protocol.
"""

from collections.abc import Iterable
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of Kafka's consumers."""


def subscribed_topics(all_metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members together; None if any member's cannot be read."""
    topics: set[str] = set()
    try:
        for metadata in all_metadata:
            topics.update(_topics_of(metadata))
    except (ValueError, EOFError):
        return None
    return frozenset(topics)


def _topics_of(metadata: bytes) -> list[str]:
    version, position = _integer(metadata, 0, 2)
    if version < 0:
        raise ValueError(f"the consumer protocol has no version {version}")
    count, position = _integer(metadata, position, 4)
    topics = []
    for _ in range(count):
        length, position = _integer(metadata, position, 2)
        if length < 0 or position + length > len(metadata):
            raise EOFError("a topic name is cut off")
        topics.append(str(metadata[position : position + length], "utf-8"))
        position += length
    return topics


def _integer(metadata: bytes, position: int, size: int) -> tuple[int, int]:
    end = position + size
    if end > len(metadata):
        raise EOFError("the metadata is cut off")
    return int.from_bytes(metadata[position:end], "big", signed=True), end
