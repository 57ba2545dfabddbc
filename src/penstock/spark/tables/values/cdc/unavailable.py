"""Finds Debezium's placeholder for a stored value that the database did not send (pure).

PostgreSQL leaves unchanged TOASTed values out of an update unless the table's replica identity is
FULL; Debezium then writes `__debezium_unavailable_value` in their place, in a form for each type:
the text, its bytes, a list of the text, a list of the numbers of its bytes, a map of the text to
itself, or a struct with a field of such a form: `wkb` of a geometry. A column of texts may have
each of these forms as JSON, and the bytes in base64 or as digits.

Guarantees: `unavailable` returns the places of these forms, for the default placeholder. A row with
one is not a row of the database and is never stored. A column is one value of the database, so a
struct with a placeholder at any depth was not sent at all. A list is a placeholder if its only item
is one; longer lists with such an item are values of the database. A database value that is this
text is not distinguished: PostgreSQL users write another one.

It does NOT see a field of a struct that the column does not have.
"""

import base64
import hashlib
import json
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

PLACEHOLDER: Final = "__debezium_unavailable_value"
_BYTES: Final = PLACEHOLDER.encode()
_DIGEST: Final = hashlib.md5(_BYTES, usedforsecurity=False).digest()
_UUID: Final = str(UUID(bytes=_DIGEST, version=3))
_DIGITS: Final = [str(one) for one in _BYTES]
"""The numbers as they are read for columns of dates and fractions: `date[]` has days."""
_NUMBERS: Final = (list(_BYTES), _DIGITS)
_MAP: Final = [(PLACEHOLDER, PLACEHOLDER)]
_BYTES_AS_TEXT: Final = base64.b64encode(_BYTES).decode()
_TEXTS: Final = pa.array(
    [
        PLACEHOLDER,
        _BYTES_AS_TEXT,
        _BYTES.hex(),
        *(
            json.dumps(one, separators=(",", ":"))
            for one in (
                [PLACEHOLDER],
                [_BYTES_AS_TEXT],
                [_UUID],
                list(_BYTES),
                {PLACEHOLDER: PLACEHOLDER},
            )
        ),
    ]
)
_GEOMETRY: Final = "wkb"
"""The field of Debezium's geometries; a column of texts or a map has it by name."""
_GEOMETRY_TEXT: Final = f'"{_GEOMETRY}":"{_BYTES_AS_TEXT}"'

WHOLE: Final = (
    "the database did not send this value, because the update left it unchanged "
    f"({PLACEHOLDER}). Run ALTER TABLE ... REPLICA IDENTITY FULL in PostgreSQL."
)
MESSAGE: Final = f"{WHOLE[:-1]}, or keep the stored value by table.partial_updates = true."
"""For a column that a partial update may keep."""
NEEDED: Final = (
    f"the database did not send this value ({PLACEHOLDER}), and a column of the key, one that is "
    "NOT NULL, and each column of a new row need it. Run ALTER TABLE ... REPLICA IDENTITY FULL in "
    "PostgreSQL."
)


def unavailable(values: pa.Array) -> list[int]:
    """Return the places of the placeholder, ascending."""
    kind = values.type
    if pa.types.is_string(kind):
        return sorted({*_places(pc.is_in(values, value_set=_TEXTS)), *_geometry_texts(values)})
    if pa.types.is_binary(kind):
        return _places(pc.equal(values, _BYTES))
    if pa.types.is_struct(kind):
        return sorted({place for field in values.flatten() for place in unavailable(field)})
    if pa.types.is_list(kind):
        return sorted({*_lists_of_numbers(values), *_lists_of_one(values)})
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        geometries = pc.map_lookup(values, query_key=_GEOMETRY, occurrence="first")
        return sorted({*_maps(values), *unavailable(geometries)})
    return []


def _geometry_texts(texts: pa.Array) -> list[int]:
    # Most texts are not JSON, and the first sign costs less than a search.
    is_nested = pc.or_(pc.starts_with(texts, pattern="{"), pc.starts_with(texts, pattern="["))
    places = _places(is_nested)
    nested = texts.take(pa.array(places, pa.int64()))
    likely = [places[one] for one in _places(pc.match_substring(nested, pattern=_GEOMETRY_TEXT))]
    return [one for one in likely if _is_geometry(texts[one].as_py())]


def _is_geometry(text: str) -> bool:
    """Return whether this is a geometry as JSON; a document that has one in it is not."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    return isinstance(found, dict) and found.get(_GEOMETRY) == _BYTES_AS_TEXT


def _lists_of_numbers(lists: pa.Array) -> list[int]:
    is_likely = pc.equal(pc.list_value_length(lists), len(_BYTES))
    return [one for one in _places(is_likely) if lists[one].as_py() in _NUMBERS]


def _lists_of_one(lists: pa.Array) -> list[int]:
    places = _places(pc.equal(pc.list_value_length(lists), 1))
    items = lists.take(pa.array(places, pa.int64())).flatten()
    assert len(items) == len(places), "an item for each list"
    found = {*unavailable(items)}
    if pa.types.is_string(items.type):
        found.update(_places(pc.equal(items, _UUID)))
    return [places[one] for one in sorted(found)]


def _maps(maps: pa.Array) -> list[int]:
    kind = maps.type
    entries = maps.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    is_likely = pc.equal(pc.list_value_length(entries), 1)
    return [one for one in _places(is_likely) if maps[one].as_py() == _MAP]


def _places(mask: pa.Array) -> list[int]:
    if not mask.true_count:
        return []
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found
