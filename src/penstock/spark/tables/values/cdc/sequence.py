"""The order of changes as one text that compares as the changes do (pure).

    h26687480a1@a0d1234     lsn 26687480, total_order 1, partition 0, offset 1234
    h26687480a1             the same lsn in a history: a change
    h26687480!              a row of a snapshot, which is before a change of the same lsn

Guarantees: of two texts with the same fields, the one of the later change is greater, compared byte
by byte, as Arrow, Spark, DuckDB and DataFusion compare texts. A number has the count of its digits
as a letter before it, so 9 is less than 10; a missing field is less than any value; digits in a
text are a number. Partition and offset come last, so two records never have the same text, and the
order does not depend on the division into batches.

It is not a number of the database: `source.lsn` and the like are there as digits to read.
"""

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import OptionError

SEQUENCE: Final = "_sequence"
"""The column of the table with the order of its row's last change."""
_NOTHING: Final = "!"
_CHANGE: Final = "a1"
"""Behind the fields of a change in a history; greater than `_NOTHING`."""
_LETTERS: Final = pa.array([chr(ord("a") + number) for number in range(26)])
_COMPLEMENT: Final = str.maketrans("0123456789", "9876543210")
_DIGITS_MAX: Final = 26
_PLAIN: Final = r"^(?:0|[1-9][0-9]{0,17})$"
_TEXT_BELOW: Final = '"'
"""Characters below it are escaped, so that the space after a text is less than any of them."""


def sequence_texts(parts: Sequence[pa.Array], partitions: pa.Array, offsets: pa.Array) -> pa.Array:
    """Return the text of each change; null if all its fields are null."""
    return _joined(parts, ["@", _codes(partitions), _codes(offsets)])


def version_texts(parts: Sequence[pa.Array], is_snapshot: pa.Array | None) -> pa.Array:
    """Return the text of each version; a record that is sent again has the same one.

    PostgreSQL gives a snapshot the place where its log ends, and the next change may have that one.
    So events of a snapshot are before changes of the same place. None: the kind is unknown.
    """
    return _joined(
        parts, [] if is_snapshot is None else [pc.if_else(is_snapshot, _NOTHING, _CHANGE)]
    )


def _joined(parts: Sequence[pa.Array], rest: Sequence[pa.Array | str]) -> pa.Array:
    codes = [*(_codes(one) for one in parts), *rest]
    texts = pc.binary_join_element_wise(*codes, "", null_handling="replace")
    is_missing = parts[0].is_null()
    for one in parts[1:]:
        is_missing = pc.and_(is_missing, one.is_null())
    return pc.if_else(is_missing, pa.scalar(None, pa.string()), texts)


def require_ordered(kind: pa.DataType, name: str) -> None:
    """Raise `OptionError` if values of this type have no order here."""
    is_whole_decimal = pa.types.is_decimal(kind) and kind.scale == 0
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date32(kind)
        or is_whole_decimal
    ):
        raise OptionError(
            "sequence_by",
            f"column '{name}' is of type {kind}, which does not order changes.",
            "Use whole numbers, times, dates or texts.",
        )


def _codes(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    texts = values.cast(pa.string())
    is_plain = pc.match_substring_regex(texts, _PLAIN)
    if not pc.all(is_plain, min_count=0).as_py():
        return pa.array([_code(one) for one in texts.to_pylist()], pa.string())
    letters = _LETTERS.take(pc.subtract(pc.utf8_length(texts), 1))
    joined = pc.binary_join_element_wise(letters, texts, "")
    return pc.fill_null(joined, _NOTHING)


def _code(text: str | None) -> str:
    """Return the text of one value of any form."""
    if text is None:
        return _NOTHING
    if text.startswith("["):
        inner = _items(text)
        if inner is not None:
            return "".join(map(_code, inner)) + " "
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        digits = digits.lstrip("0") or "0"
        if len(digits) <= _DIGITS_MAX:
            if not text.startswith("-") or digits == "0":
                return chr(ord("a") + len(digits) - 1) + digits
            return f"-{chr(ord('z') - len(digits) + 1)}{digits.translate(_COMPLEMENT)}"
    escaped = "".join(one if one >= _TEXT_BELOW else f"!{chr(ord(one) + ord('@'))}" for one in text)
    return f"~{escaped} "


def _items(text: str) -> list[str | None] | None:
    """Return the items of a list of texts and nulls in JSON, as Debezium's `source.sequence`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not all(one is None or isinstance(one, str) for one in found):
        return None
    return found
