"""The records of the table benchmarks: about 200 bytes of JSON, ten columns.

Pure, and without imports of Penstock: the environments of other engines use it, too.
"""

import json

SCHEMA = (
    "id bigint, user string, event string, amount double, quantity int, country string, "
    "paid boolean, created bigint, session string, note string"
)
COLUMNS = tuple(part.split()[0] for part in SCHEMA.split(", "))
METADATA = ("topic", "partition", "offset", "timestamp", "key", "headers")
"""The fields of the column `_kafka` that a table of Penstock has; every contestant writes it."""
BROKEN = b'{"id": 17, "user": "user-0'
"""Cut off, as if its producer died."""


def event(number: int) -> bytes:
    """Return a typical shop event."""
    fields = {
        "id": number,
        "user": f"user-{number * 7919 % 100_000:06d}",
        "event": ("view", "click", "cart", "purchase")[number % 4],
        "amount": round(number * 0.37 % 500, 2),
        "quantity": number % 9,
        "country": ("CH", "DE", "FR", "IT", "AT")[number % 5],
        "paid": number % 3 == 0,
        "created": 1_790_000_000_000 + number * 37,
        "session": f"{number * 2654435761 % 2**32:08x}",
        "note": f"{number * 40503 % 2**16:04x} " * 8,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def events(count: int, *, broken_every: int = 0) -> list[bytes]:
    """Return `count` events; one in `broken_every` cannot be parsed, none if it is 0."""
    return [
        BROKEN if broken_every and number % broken_every == broken_every - 1 else event(number)
        for number in range(count)
    ]
