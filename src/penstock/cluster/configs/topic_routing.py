"""`topic_routing`: how a topic's records reach push subscribers that name no mode. Pure.

The settings `penstock.routing` and `penstock.buffer.size` of a topic hold it. They are stored with
the topic, so every broker of a cluster has the same routing. Invalid stored text means the default.

Kafka clients are NOT affected by the routing: a client chooses by its own protocol.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.settings.topic_declarations import BUFFER_SIZE, ROUTING, ROUTINGS

FANOUT, QUEUE = ROUTINGS


class TopicRouting(NamedTuple):
    """The routing of one topic."""

    is_queue: bool
    """Each record goes to one subscriber of the share group that has the topic's name."""
    buffer_size: int | None
    """Most records in flight to the subscribers; None: only the limits of groups and sessions."""


def topic_routing(settings: Mapping[str, str]) -> TopicRouting:
    """Return the routing of a topic with these own settings. It never fails."""
    text = settings.get(BUFFER_SIZE, "").strip()
    size = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return TopicRouting(settings.get(ROUTING, FANOUT).strip() == QUEUE, size or None)
