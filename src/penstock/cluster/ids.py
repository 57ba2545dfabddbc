"""Ids in Kafka's form: 16 random bytes, written as 22 characters of URL-safe base64.

Kafka does not use ids whose text begins with `-`, because command lines parse them as options. It
also reserves the few lowest ids. Penstock follows both rules.
"""

import base64
from collections.abc import Callable
from uuid import UUID

_RESERVED_MAX = 100
"""Kafka reserves ids up to this number."""


def id_text(identifier: UUID) -> str:
    """Return the 22 characters that Kafka shows for an id."""
    return base64.urlsafe_b64encode(identifier.bytes).decode().rstrip("=")


def draw_id(random_id: Callable[[], UUID]) -> UUID:
    """Return the first id from `random_id` that Kafka would use."""
    while True:
        identifier = random_id()
        if identifier.int > _RESERVED_MAX and not id_text(identifier).startswith("-"):
            return identifier
