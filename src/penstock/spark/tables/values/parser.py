"""The port `ValueParser`: converts a column of bytes to columns of a table, and rejects.

Guarantees of each parser, checked by one test suite: every row of the input is either in `rows` or
in `rejects`, never in both; `rows` keeps the order of the input; a bad record costs its own row
only. A parser belongs to one task, and one thread uses it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

MESSAGE_CHARACTERS_MAX: Final = 1_000
"""A reason is for people; the value itself is in the same row of the table of bad records."""


class ErrorClass(Enum):
    """The reason why a record is not in the table."""

    MALFORMED = "malformed"
    """The bytes do not have the format."""
    TYPE_MISMATCH = "type_mismatch"
    """A field has a value that its column cannot hold."""
    MISSING_VALUE = "missing_value"
    """A required column has no value."""
    UNKNOWN_SCHEMA = "unknown_schema"
    """The registry has no schema for the record's id."""
    INCOMPATIBLE_SCHEMA = "incompatible_schema"
    """The record's schema does not fit the table's."""
    EXPECTATION = "expectation"
    """A rule quarantines the record."""
    CONSTRAINT = "constraint"
    """The row breaks a rule of the table's owner, such as a CHECK of a Delta table."""
    LATE = "late"
    """The event time is not after the watermark of a stateful function."""
    FUTURE = "future"
    """The event time is too far ahead of the clock, and would move that watermark."""


class RowError(Exception):
    """The reason why one value is not a row: parsers raise it internally and return a `Reject`."""

    def __init__(self, error: ErrorClass, message: str) -> None:
        self.error = error
        self.message = message

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class Reject(NamedTuple):
    """One unreadable record; a tuple, because many are created."""

    row: int
    """The row's number in the input."""
    error: ErrorClass
    message: str
    """The problem, with the field and its value."""
    schema_id: int | None = None
    """The registry's id in the record, if it has one."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parser's result for one column of values."""

    rows: pa.RecordBatch
    row_numbers: pa.Array | None
    """The number of each row in the input; None if `rows` has all rows of the input."""
    rejects: tuple[Reject, ...] = ()
    """The rejects, in the order of the input."""


class ValueParser(Protocol):
    """A parser of values of one format."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows; with a registry they may grow between two calls."""

    def parse(self, values: pa.Array) -> Parsed:
        """Parse a column of type binary; a null is a row of nulls."""


def rejecting(parsed: Parsed, bad: Sequence[Reject]) -> Parsed:
    """Return the result without these rows; each is a reject, by its number in `rows`."""
    if not bad:
        return parsed
    gone = pa.array([one.row for one in bad], pa.int64())
    is_kept = pc.invert(pc.is_in(pa.arange(0, parsed.rows.num_rows), value_set=gone))
    kept = pc.indices_nonzero(is_kept).cast(pa.int64())
    numbers = kept if parsed.row_numbers is None else parsed.row_numbers.take(kept)
    moved = [of_record(one, parsed) for one in bad]
    rejects = tuple(sorted([*parsed.rejects, *moved], key=lambda one: one.row))
    return Parsed(parsed.rows.take(kept), numbers, rejects)


def of_record(reject: Reject, parsed: Parsed) -> Reject:
    """Return a reject with the number of its record instead of its row."""
    if parsed.row_numbers is None:
        return reject
    return reject._replace(row=parsed.row_numbers[reject.row].as_py())


def short(message: str) -> str:
    """Return the message, cut if long, and without characters that some stores reject."""
    if len(message) <= MESSAGE_CHARACTERS_MAX and message.isascii() and "\x00" not in message:
        return message
    clean = message.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\\0")
    if len(clean) <= MESSAGE_CHARACTERS_MAX:
        return clean
    return clean[: MESSAGE_CHARACTERS_MAX - 1] + "…"
