"""Errors in the definition of a pipeline: the place, the key, the reason, and the remedy.

The text is complete: the user reads it in a terminal, without the file.
"""

from typing import Final

from penstock.core.errors import PenstockError
from penstock.spark.errors import OptionError, SparkQueryError, SubscriptionError

OPTION_KEYS: Final = {
    "subscribe": "source.topics",
    "subscribepattern": "source.pattern",
    "assign": "source.topics",
    "startingoffsets": "source.starting_offsets",
    "kafka.bootstrap.servers": "pipeline.bootstrap_servers",
    "key": "table.key",
    "partition_by": "table.partition_by",
    "sort_by": "table.sort_by",
}
"""The definition's key for each option of the layers below, by the option's name."""


class _KeyedError(SparkQueryError):
    """Base of the errors about one key of a definition."""

    def __init__(self, where: str, key: str, problem: str, remedy: str) -> None:
        super().__init__(where, key, problem, remedy)
        self.where = where
        self.key = key
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return _text(self.where, self.key, f"{self.problem} {self.remedy}")


class DefinitionError(_KeyedError):
    """A key of a pipeline's definition is missing, wrong, unknown, or contradicts another one."""


class UnusableError(_KeyedError):
    """The resource in a key is missing or unusable: a topic, a catalog, a folder.

    The definition itself may be right: this is not a `DefinitionError`, and may be temporary.
    """


class SchemaError(SparkQueryError):
    """A schema is unreadable, or has a type that a table cannot hold."""

    def __init__(self, what: str, problem: str, remedy: str) -> None:
        super().__init__(what, problem, remedy)
        self.what = what
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}: {self.problem} {self.remedy}"


def as_written(error: PenstockError, where: str) -> PenstockError:
    """Return the error in the terms of the definition: its file, and its key."""
    match error:
        case DefinitionError(where="", key=key, problem=problem, remedy=remedy):
            return DefinitionError(where, key, problem, remedy)
        case UnusableError(where="", key=key, problem=problem, remedy=remedy):
            return type(error)(where, key, problem, remedy)
        case OptionError(option=option, problem=problem, remedy=remedy):
            key = OPTION_KEYS.get(option.lower(), f"source.options.{option}")
            return DefinitionError(where, key, problem, remedy)
        case SubscriptionError(option=option, problem=problem, remedy=remedy):
            return UnusableError(where, OPTION_KEYS[option.lower()], problem, remedy)
    return error


def _text(where: str, key: str, message: str) -> str:
    named = ", ".join(part for part in (where, f"key '{key}'" if key else "") if part)
    return f"{named}: {message}" if named else message
