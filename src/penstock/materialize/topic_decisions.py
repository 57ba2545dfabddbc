"""What to do with a topic: compares the file's state with the cluster's metadata (pure).

    in the file         in the cluster           decision
    -                   topic                    BEGIN: create its table
    -                   -                        WAIT: MISSING
    topic               -                        WAIT: MISSING
    topic               the same id              FOLLOW; BUILD if a refresh was requested
    topic               another id               WAIT: RECREATED, or BUILD with on_recreate=rebuild
    topic, building     the building id          FOLLOW: continue to build
    topic, building     another id               as above: a new build, or WAIT

BUILD fills a new generation beside the rows that are served, and replaces them when it is complete.
A wrong metadata answer of a broker that is not up to date does no harm: WAIT ends at the next look,
and a build that was not completed changes nothing that is served.

It does NOT send requests and does NOT change the file.
"""

import enum
import uuid
from dataclasses import dataclass
from typing import Final

from penstock.client.cluster_view import TopicDescription

STOP: Final = "stop"
REBUILD: Final = "rebuild"
ON_RECREATE: Final = (STOP, REBUILD)


class Action(enum.Enum):
    """The next step for a topic."""

    BEGIN = enum.auto()
    FOLLOW = enum.auto()
    BUILD = enum.auto()
    WAIT = enum.auto()


class TopicState(enum.Enum):
    """The state of a topic in `/health`."""

    STARTING = "STARTING"
    LOADING = "LOADING"
    FOLLOWING = "FOLLOWING"
    REFRESHING = "REFRESHING"
    MISSING = "MISSING"
    RECREATED = "RECREATED"
    DIVERGED = "DIVERGED"
    DENIED = "DENIED"
    CORRUPT = "CORRUPT"


@dataclass(frozen=True, slots=True)
class Generation:
    """One table of a topic, with its positions."""

    number: int
    topic_id: uuid.UUID | None
    positions: dict[int, int]
    """The offset of the next record, by partition."""
    ready: dict[int, int]
    """The positions at which a build is complete."""

    @property
    def is_ready(self) -> bool:
        """Return whether the positions have reached the end of the build."""
        return all(self.positions.get(at, 0) >= end for at, end in self.ready.items())


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic in the file."""

    name: str
    live: Generation
    building: Generation | None = None
    skipped_records: int = 0

    @property
    def written(self) -> Generation:
        """Return the generation that gets new records."""
        return self.building or self.live


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a topic; a state, reason and remedy when it waits."""

    action: Action
    state: TopicState = TopicState.STARTING
    reason: str = ""
    remedy: str = ""


def decide(
    name: str,
    stored: StoredTopic | None,
    found: TopicDescription | None,
    *,
    on_recreate: str,
    wants_refresh: bool,
) -> Decision:
    """Return the decision for one topic."""
    if found is None:
        return Decision(
            Action.WAIT,
            TopicState.MISSING,
            f"topic {name!r} not found; its rows are as of the last record.",
            f"Create it: `penstock topic create {name}`, or correct the name or the rights.",
        )
    if stored is None:
        return Decision(Action.BEGIN)
    if stored.building is not None and _is_same(stored.building, found):
        return Decision(Action.FOLLOW)
    if _is_same(stored.live, found):
        # A build of an id that is gone is abandoned by the next build or by the store.
        return Decision(Action.BUILD if wants_refresh or stored.building else Action.FOLLOW)
    if on_recreate == REBUILD:
        return Decision(Action.BUILD)
    return Decision(
        Action.WAIT,
        TopicState.RECREATED,
        f"topic {name!r} was deleted and created again: its id was {stored.live.topic_id} and is "
        f"{found.topic_id}. The rows are those of the old topic.",
        "Restart with --on-recreate rebuild to replace the rows by those of the new topic.",
    )


def _is_same(generation: Generation, found: TopicDescription) -> bool:
    """Return whether the ids agree; brokers without topic ids must have all known partitions."""
    if generation.topic_id is not None and found.topic_id is not None:
        return generation.topic_id == found.topic_id
    return set(generation.positions) <= set(found.partitions)
