"""Record batches that are cheap to send and expensive to handle. Pure.

Every batch is well formed up to the point that its docstring names, so that the broker has to do
the work before it can refuse.
"""

from functools import cache
from typing import Final

from penstock.records.compression import ZSTD
from tests.bad_input.batches import packed
from tests.bad_input.wire import varint, zigzag

BOMB_BYTES: Final = 134_217_000
"""Just below what one batch may unfold to."""


@cache
def tiny_records_batch(count: int, *, is_keyed: bool = False, codec: int = ZSTD) -> bytes:
    """A legal batch of `count` records of 8 to 14 bytes each; keys differ when there are any."""
    return packed(_tiny_records(count, is_keyed=is_keyed), codec=codec, count=count)


def _tiny_records(count: int, *, is_keyed: bool) -> bytes:
    parts: list[bytes] = []
    for delta in range(count):
        key = b"\x08" + delta.to_bytes(4, "big") if is_keyed else b"\x01"
        body = b"\x00\x00" + varint(2 * delta) + key + b"\x01\x00"
        parts.append(bytes((2 * len(body),)) + body)
    return b"".join(parts)


@cache
def zeros_bomb() -> bytes:
    """A few kilobytes that unfold to 128 MiB of zeros, which are not a record."""
    return packed(bytes(BOMB_BYTES), codec=ZSTD)


@cache
def legal_bomb(value_bytes: int) -> bytes:
    """One legal record whose value repeats a random block, so that it packs well."""
    block = bytes((7 * n * n + 13 * n) % 251 for n in range(65_536))
    value = (block * (value_bytes // len(block) + 1))[:value_bytes]
    body = b"\x00\x00\x00\x01" + zigzag(len(value)) + value + b"\x00"
    return packed(zigzag(len(body)) + body, codec=ZSTD)
