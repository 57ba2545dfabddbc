"""The smallest body of zeros that is a request, for each version of each API that is served.

Such a request is valid and has nothing in it: empty names and lists, zero times.
"""

import functools

from penstock.broker.handlers import HANDLERS
from penstock.core.errors import PeerError
from penstock.protocol import codec

SIZE_MAX = 80


@functools.cache
def zero_bodies() -> dict[tuple[int, int], bytes]:
    """By API key and version."""
    found: dict[tuple[int, int], bytes] = {}
    for key, handler in HANDLERS.items():
        api_key = int(key)
        for version in range(handler.versions.lowest, handler.versions.highest + 1):
            for size in range(SIZE_MAX):
                try:
                    codec.decode_request(api_key, version, bytearray(size))
                except PeerError:
                    continue
                found[api_key, version] = bytes(size)
                break
    return found
