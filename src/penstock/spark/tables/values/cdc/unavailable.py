"""Finds Debezium's placeholder for a stored value that the database did not send (pure).

PostgreSQL leaves unchanged TOASTed values out of an update unless the table's replica identity is
FULL; Debezium then writes `__debezium_unavailable_value` in their place, in a form for each type:
the text, its bytes, a list of the text, a list of the numbers of its bytes, or a map of the text to
itself. A column of texts may have each of these forms as JSON, and the bytes in base64 or as
digits.

Guarantees: `unavailable` returns the places of these forms, for the default placeholder. A row with
one is not a row of the database and is never stored. A database value that is this text is not
distinguished: PostgreSQL users write another one.
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
_LISTS: Final = ([PLACEHOLDER], [_BYTES], [_UUID], list(_BYTES), _DIGITS)
_MAP: Final = [(PLACEHOLDER, PLACEHOLDER)]
_TEXTS: Final = pa.array(
    [
        PLACEHOLDER,
        base64.b64encode(_BYTES).decode(),
        _BYTES.hex(),
        *(
            json.dumps(one, separators=(",", ":"))
            for one in ([PLACEHOLDER], [_UUID], list(_BYTES), {PLACEHOLDER: PLACEHOLDER})
        ),
    ]
)
_LENGTHS: Final = pa.array(sorted({len(one) for one in _LISTS}), pa.int32())

MESSAGE: Final = (
    "the database did not send this value, because the update left it unchanged "
    f"({PLACEHOLDER}). Run ALTER TABLE ... REPLICA IDENTITY FULL in PostgreSQL, or keep the "
    "stored value by table.partial_updates = true."
)
NEEDED: Final = (
    f"the database did not send this value ({PLACEHOLDER}), and a column of the key, one that is "
    "NOT NULL, and each column of a new row need it. Run ALTER TABLE ... REPLICA IDENTITY FULL in "
    "PostgreSQL."
)


def unavailable(values: pa.Array) -> list[int]:
    """Return the places of the placeholder."""
    kind = values.type
    if pa.types.is_string(kind):
        return _places(pc.is_in(values, value_set=_TEXTS))
    if pa.types.is_binary(kind):
        return _places(pc.equal(values, _BYTES))
    if pa.types.is_list(kind):
        is_likely = pc.is_in(pc.list_value_length(values), value_set=_LENGTHS)
        return [one for one in _places(is_likely) if values[one].as_py() in _LISTS]
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        entries = values.cast(
            pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        )
        is_likely = pc.equal(pc.list_value_length(entries), 1)
        return [one for one in _places(is_likely) if values[one].as_py() == _MAP]
    return []


def _places(mask: pa.Array) -> list[int]:
    if not mask.true_count:
        return []
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found
