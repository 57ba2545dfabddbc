"""Inputs and answers of the operations on pipes. Values only."""

from typing import Annotated, Final, Literal

from pydantic import Field

from penstock.admin.model import Answer, Input, TopicName
from penstock.core.settings import pipe_declarations

PARTITIONS_SHOWN_MAX: Final = 1_000
"""Partitions in one answer: about 200 KB of the longest names."""
TOPICS_PER_CHANGE_MAX: Final = 1_000

PipeName = Annotated[
    str,
    Field(
        max_length=63,
        pattern=pipe_declarations.NAME_PATTERN,
        description="Name of a pipe.",
        examples=["hq"],
    ),
]


class PipePath(Input):
    """A pipe in the path."""

    pipe: PipeName


class NewPipe(Input):
    """A pipe to run until the broker stops."""

    name: PipeName
    parent: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4_096,
            description="Bootstrap addresses of the parent.",
            examples=["hq.example.com:9092"],
        ),
    ]
    topics: Annotated[
        list[pipe_declarations.TopicPattern],
        Field(
            min_length=1,
            max_length=pipe_declarations.PATTERNS_MAX,
            description="Topics to mirror; `*` stands for any characters.",
            examples=[["price", "promo.*"]],
        ),
    ]
    groups: Annotated[
        list[pipe_declarations.GroupPattern],
        Field(
            default_factory=list,
            max_length=pipe_declarations.PATTERNS_MAX,
            description="Groups whose committed offsets are copied.",
        ),
    ]
    client_config: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=4_096,
            description="File on the broker's machine with client settings for the parent.",
        ),
    ] = None
    on_gap: Annotated[
        Literal["stop", "skip"], Field(description="If the parent deleted records too early.")
    ] = "stop"
    bytes_per_second_max: Annotated[
        int, Field(ge=0, le=2**40, description="Bound of the copied bytes; 0: none.")
    ] = 0


class ChosenTopics(Input):
    """The topics of a change."""

    topics: Annotated[
        list[TopicName],
        Field(
            default_factory=list,
            max_length=TOPICS_PER_CHANGE_MAX,
            description="Empty: all topics of the pipe.",
        ),
    ]


class PipePartition(Answer):
    """One mirrored partition."""

    topic: str
    partition: int
    phase: str
    end_offset: int
    lag_records: int
    reason: str
    remedy: str


class PipeEntry(Answer):
    """One pipe."""

    name: str
    parent: str
    direction: Annotated[str, Field(description="`down` or `up`.")]
    site: Annotated[str, Field(description="Name of this broker at the parent; empty: down.")]
    topics: list[str]
    groups: list[str]
    health: str
    reason: str
    remedy: str
    is_paused: bool
    is_in_step: Annotated[bool, Field(description="Whether everything of the parent is here.")]
    partition_count: int
    lag_records: int
    records: Annotated[int, Field(description="Copied since the pipe was started.")]
    size_bytes: int
    waiting_bytes: Annotated[int, Field(description="Not sent up yet, about.")]
    records_per_second: float
    bytes_per_second: float
    seconds_to_catch_up: Annotated[float | None, Field(description="Null: unknown.")]
    seconds_until_full: Annotated[
        float | None, Field(description="Until the disk has no room; null: it does not fill.")
    ]
    silent_seconds: Annotated[float, Field(description="Since the last answer of the parent.")]
    gaps: Annotated[int, Field(description="Skipped gaps.")]
    gap_records: Annotated[int, Field(description="Offsets in skipped gaps.")]
    cut_records: Annotated[int, Field(description="Removed offsets that the parent did not have.")]
    promoted: Annotated[list[str], Field(description="Topics that clients write again.")]
    busy_groups: Annotated[
        list[str], Field(description="Groups with members here: their offsets are not copied.")
    ]


class PipeList(Answer):
    """All pipes of the broker."""

    pipes: list[PipeEntry]


class PipeDetail(Answer):
    """One pipe with its partitions."""

    pipe: PipeEntry
    partitions: Annotated[
        list[PipePartition],
        Field(description="At most 1,000, those with problems and the longest lag first."),
    ]


class NewStart(ChosenTopics):
    """Where an up pipe sends topics from."""

    start: Annotated[
        Literal["earliest", "latest"],
        Field(description="`earliest`: all records here again; `latest`: only new ones."),
    ]


class ChangedTopics(Answer):
    """The topics that were changed."""

    topics: list[str]


class RefreshPath(Input):
    """A topic in the path."""

    topic: TopicName


class NewRefresh(Input):
    """A snapshot to install in a mirror."""

    place: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4_096,
            description="Directory on the broker's machine, or address of a bucket.",
            examples=["/var/snapshots/price", "s3://bucket/price"],
        ),
    ]
    is_forced: Annotated[
        bool,
        Field(
            default=False,
            description="Install it although the mirror does not continue the snapshot.",
        ),
    ]


class WantedSend(Input):
    """Subscribers to refresh."""

    group: Annotated[
        str | None,
        Field(default=None, max_length=255, description="Only subscribers with this group."),
    ]


class RefreshEntry(Answer):
    """An installation, or the last one."""

    topic: str
    state: Literal["NONE", "RUNNING", "DONE", "FAILED"]
    place: str
    snapshot_id: str
    partitions: int
    records: int
    size_bytes: int
    seconds: float
    reason: str
    remedy: str


class SentRefresh(Answer):
    """Refreshes of push subscribers that began."""

    topic: str
    subscribers: int
