"""Finds the columns that each change carries, for tables that take partial updates (pure).

    {"id": 1, "name": null}     carries name, as null; a column `note` is absent, and is kept

Guarantees: a column is carried if the row of the value has its field, also with null, and the field
is not Debezium's placeholder. The first field of a name counts, as in `json.decoding`. Presence is
of columns: a struct, a list or a map that is carried is carried whole.

A value without a null needs no look at its text. Others are decoded one at a time, in some 10 us.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.values.json.decoding import decoded
from penstock.spark.tables.values.parser import ErrorClass, Reject

CARRIED: Final = "_change_carried"
"""The column of changes with a flag for each column that may be absent."""
_UNCLEAR: Final = "the value is nested too deeply to see which fields it has."


def carried_field(names: Sequence[str]) -> pa.Field:
    """Return the column of flags for these columns."""
    return pa.field(CARRIED, pa.struct([pa.field(one, pa.bool_()) for one in names]))


def carried_columns(
    payloads: pa.Array,
    path: Sequence[str],
    columns: Mapping[str, pa.Array],
    unsent: Mapping[str, Collection[int]],
) -> tuple[pa.StructArray, list[Reject]]:
    """Return the flags of each change, and rejects for values that cannot be looked at.

    `columns` are the columns as they were read, by name, and `path` is the place of the row in the
    payload. `unsent` has the places of placeholders.
    """
    count = len(payloads)
    has_null = pa.repeat(pa.scalar(value=False), count)
    for one in columns.values():
        has_null = pc.or_(has_null, one.is_null())
    there: dict[str, list[int]] = {name: [] for name in columns}
    rejects = []
    for place in pc.indices_nonzero(has_null).to_pylist():
        try:
            names = _fields(payloads[place].as_py(), path)
        except (ValueError, RecursionError):  # values that only the parser accepts
            rejects.append(Reject(place, ErrorClass.MALFORMED, _UNCLEAR))
            continue
        for name in names:
            if name in there:
                there[name].append(place)
    has_all = pc.invert(has_null)
    flags = []
    for name, column in columns.items():
        assert len(column) == count, "a value for each change"
        is_there = pc.or_(has_all, _mask(there[name], count))
        flags.append(pc.and_not(is_there, _mask(unsent.get(name, ()), count)))
    kind = carried_field(list(columns)).type
    if not flags:
        return pa.array([{}] * count, kind), rejects
    return pa.StructArray.from_arrays(flags, fields=list(kind)), rejects


def _fields(payload: bytes, path: Sequence[str]) -> Collection[str]:
    """Return the names of the fields of the row."""
    found = decoded(payload.decode())
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found.keys() if isinstance(found, dict) else ()


def _mask(places: Collection[int], count: int) -> pa.Array:
    """Return an array of flags, true at these places."""
    return pc.is_in(pa.arange(0, count), value_set=pa.array(list(places), pa.int64()))
