"""Base classes of bodies, parameters and answers, and types of fields that several share.

Inputs are strict and closed: a value of the wrong type is refused, not converted, and so is an
unknown field. Every text, list and number has a bound. The published description is generated from
the same classes, so it cannot differ.
"""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from penstock.core import limits

PAGE_SIZE_MAX: Final = 1_000
"""Entries of one page: about 200 KB of the longest names."""
PAGE_SIZE_DEFAULT: Final = 100
NAME_CHARACTERS_MAX: Final = 1_024
"""Names of groups and transactional ids. Kafka allows 32,767 bytes; a URL does not."""
AFTER_CHARACTERS_MAX: Final = 32_767
"""Any name that Kafka allows: a page may end with it, and `next` is `after` of the one behind."""
SETTINGS_MAX: Final = 100
"""Settings in one request: a topic has about forty."""
SETTING_NAME_CHARACTERS_MAX: Final = 255
SETTING_VALUE_CHARACTERS_MAX: Final = 8_192
TOPICS_PER_RESET_MAX: Final = 1_000
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class Input(BaseModel):
    """The input of a request: a body, or parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Answer(BaseModel):
    """The output of a request. Fields are part of the interface: they are only added."""

    model_config = ConfigDict(extra="forbid", frozen=True)


TopicName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=limits.TOPIC_NAME_CHARACTERS_MAX,
        pattern=r"^[a-zA-Z0-9._-]+$",
        description="Name of a topic.",
        examples=["orders"],
    ),
]
GroupName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=NAME_CHARACTERS_MAX,
        description="Name of a group.",
        examples=["billing"],
    ),
]
TransactionalId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=NAME_CHARACTERS_MAX,
        description="Transactional id of a producer.",
        examples=["payments-1"],
    ),
]
PartitionNumber = Annotated[int, Field(ge=0, le=INT32_MAX, description="Number of a partition.")]
Offset = Annotated[int, Field(ge=0, le=INT64_MAX)]
SettingName = Annotated[
    str, Field(min_length=1, max_length=SETTING_NAME_CHARACTERS_MAX, examples=["retention.ms"])
]
SettingValue = Annotated[str, Field(max_length=SETTING_VALUE_CHARACTERS_MAX, examples=["86400000"])]


class TopicPath(Input):
    """A topic in the path."""

    topic: TopicName


class PartitionPath(Input):
    """A partition in the path."""

    topic: TopicName
    partition: PartitionNumber


class GroupPath(Input):
    """A group in the path."""

    group: GroupName


class Page(Input):
    """Which part of a list is wanted."""

    limit: Annotated[
        int, Field(ge=1, le=PAGE_SIZE_MAX, description="Entries of this page, at most.")
    ] = PAGE_SIZE_DEFAULT
    after: Annotated[
        str | None,
        Field(
            max_length=AFTER_CHARACTERS_MAX,
            description="Entries whose name comes after this one: `next` of the page before.",
        ),
    ] = None


class Setting(Answer):
    """One setting in force."""

    name: str
    value: Annotated[str | None, Field(description="None: secret, or without a value.")]
    source: Annotated[str, Field(description="Where the value comes from.", examples=["default"])]
    read_only: bool


class SettingList(Answer):
    """All settings of something, by name."""

    settings: list[Setting]


class SettingEdits(Input):
    """Settings to change: all of them or none."""

    settings: Annotated[
        dict[SettingName, SettingValue | None],
        Field(
            min_length=1,
            max_length=SETTINGS_MAX,
            description="Kafka's names; null takes a setting back to its default.",
            examples=[{"retention.ms": "86400000"}],
        ),
    ]
