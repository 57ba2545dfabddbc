"""The answers about groups. Fields are part of the interface: they are only added."""

from typing import Annotated

from pydantic import Field

from penstock.admin.model import Answer


class GroupSummary(Answer):
    """One group of the list; fields that an old broker does not report are null."""

    group: str
    type: str | None
    state: str | None
    protocol: str | None
    coordinator: Annotated[int, Field(description="Id of the broker that coordinates it.")]


class GroupPage(Answer):
    """One page of the groups, by name."""

    groups: list[GroupSummary]
    next: Annotated[str | None, Field(description="`after` of the next page; null at the end.")]


class Place(Answer):
    """One partition."""

    topic: str
    partition: int


class GroupMemberAnswer(Answer):
    """One member; what its protocol does not have is null."""

    member: str
    client: str
    host: str
    instance: str | None
    epoch: int | None
    partitions: list[Place] | None
    target: list[Place] | None


class GroupOffset(Answer):
    """What a group committed in one partition, and how far that is behind."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int | None
    lag: Annotated[int | None, Field(description="Null: nothing committed, or the topic is gone.")]
    member: str | None


class GroupOffsets(Answer):
    """What a group committed."""

    group: str
    lag: Annotated[int, Field(description="The sum over partitions whose lag is known.")]
    offsets: list[GroupOffset]


class GroupDetail(Answer):
    """All of a group."""

    group: str
    type: str
    state: str
    protocol: str | None
    assignor: str | None
    coordinator: int
    epoch: int | None
    assignment_epoch: int | None
    members: list[GroupMemberAnswer]
    lag: int
    offsets: list[GroupOffset]
