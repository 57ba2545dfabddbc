"""Page tokens: where the next page of a list begins (pure).

A page is ordered by key and partition. A token names the last row of a page, so pages stay correct
while rows are written, and no page costs more than the first. A token belongs to one topic and one
filter; it is rejected with another one. It is not a secret and grants nothing.
"""

import base64
import json
from typing import Final, NamedTuple
from zlib import crc32

from penstock.core.errors import InvalidRequestError
from penstock.materialize.row_changes import Column

TOKEN_CHARACTERS_MAX: Final = 100_000
"""Keys may be long; the head of a request has a smaller bound of its own."""
_VERSION: Final = 1


class PageStart(NamedTuple):
    """The row before the first row of a page."""

    key: Column
    partition: int


def write_token(topic: str, filter_text: str, after: PageStart) -> str:
    """Return the token for the page after a row."""
    is_text = isinstance(after.key, str)
    key = after.key if isinstance(after.key, str) else base64.b64encode(after.key).decode()
    fields = [_VERSION, _mark(topic, filter_text), is_text, key, after.partition]
    text = json.dumps(fields, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_token(token: str, topic: str, filter_text: str) -> PageStart:
    """Return the start of a page, or raise `InvalidRequestError`."""
    try:
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise ValueError(token[:16])
        padded = token + "=" * (-len(token) % 4)
        version, mark, is_text, key, partition = json.loads(base64.urlsafe_b64decode(padded))
        if version != _VERSION or type(partition) is not int or not 0 <= partition < 2**31:
            raise ValueError(version)
        column: Column = key if is_text else base64.b64decode(key, validate=True)
        if isinstance(column, str):
            column.encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidRequestError(
            "the page token is not one of this service.",
            hint="Use `next_page` of the previous page, or leave `page` out.",
        ) from None
    if mark != _mark(topic, filter_text):
        raise InvalidRequestError(
            "the page token belongs to another topic or filter.",
            hint="Repeat the request with the filter of the first page.",
        )
    return PageStart(column, partition)


def _mark(topic: str, filter_text: str) -> int:
    return crc32(f"{topic}\0{filter_text}".encode(errors="replace"))
