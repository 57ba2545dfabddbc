"""Inputs and answers of the operations on leases. Values only."""

from typing import Annotated

from pydantic import Field

from penstock.admin.model import Answer, Input, Offset, PartitionNumber, TopicName
from penstock.core.lease_limits import LEASE_PARTITIONS_MAX, LEASE_SECONDS_MAX

LeaseId = Annotated[
    str,
    Field(
        max_length=32,
        pattern=r"^[0-9a-f]{32}$",
        description="Id of a lease.",
        examples=["0123456789abcdef0123456789abcdef"],
    ),
]


class LeasePath(Input):
    """A lease in the path."""

    lease: LeaseId


class WantedPartition(Input):
    """Offsets of one partition to lease."""

    partition: PartitionNumber
    from_offset: Offset
    until_offset: Annotated[
        Offset, Field(description="The end of the offsets; the record at it is not wanted.")
    ]


class NewLease(Input):
    """Sealed segments of a topic to lease."""

    topic: TopicName
    partitions: Annotated[
        list[WantedPartition], Field(min_length=1, max_length=LEASE_PARTITIONS_MAX)
    ]
    seconds: Annotated[
        int,
        Field(ge=1, le=LEASE_SECONDS_MAX, description="The time after which the lease ends."),
    ]


class LeasedFile(Answer):
    """One sealed segment. Its files are `<partition>-<base offset, 20 digits>.log` and so on."""

    base_offset: int
    next_offset: int
    size_bytes: int
    has_offset_index: Annotated[bool, Field(description="Whether there is a file .index.")]
    has_transaction_index: Annotated[bool, Field(description="Whether there is a file .txnindex.")]


class EpochStart(Answer):
    """A leader epoch in the leased offsets."""

    epoch: int
    start_offset: int


class AbortedSpan(Answer):
    """An aborted transaction that ends behind the last leased segment."""

    producer_id: int
    first_offset: int
    last_offset: Annotated[int, Field(description="The offset of its marker.")]


class LeasedLog(Answer):
    """The leased part of a partition."""

    partition: int
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    segments: list[LeasedFile]
    epochs: list[EpochStart]
    aborted: list[AbortedSpan]


class SkippedPartition(Answer):
    """A wanted partition without a leased segment, or with a part of them."""

    partition: int
    code: Annotated[
        str,
        Field(
            description="NOTHING_SEALED, NOT_LED, NOT_SERVED, OTHER_TOPIC, COMPACTING, "
            "OTHER_DIRECTORY or TOO_MANY."
        ),
    ]
    reason: str


class LeaseEntry(Answer):
    """A lease in a list."""

    id: str
    topic: str
    principal: str
    created_at_ms: int
    expires_at_ms: int
    segments: int
    size_bytes: Annotated[int, Field(description="Size of its segments, held elsewhere or not.")]


class LeaseList(Answer):
    """The leases that the caller may see, the oldest first."""

    leases: list[LeaseEntry]


class GrantedLease(Answer):
    """A lease with its files. It has none, and no entry in the list, if all were skipped."""

    id: str
    cluster_id: str
    topic: str
    topic_id: Annotated[str, Field(description="In Kafka's form: base64 for URLs.")]
    expires_at_ms: int
    directory: Annotated[
        str, Field(description="Its directory on the broker's machine, with leases/<id> as its end")
    ]
    partitions: list[LeasedLog]
    skipped: list[SkippedPartition]
