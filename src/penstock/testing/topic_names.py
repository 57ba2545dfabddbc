"""`fresh_topic_name`: a unique topic name that contains the name of its test."""

import re
import secrets
from typing import Final

_CHARACTERS_MAX: Final = 200
"""Characters of the test's name in a topic name; a topic name may have 249."""


def fresh_topic_name(test_name: str) -> str:
    """Return a name of the characters that Kafka allows; unique also on a shared broker."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", test_name).strip("-.")[:_CHARACTERS_MAX]
    return f"{readable or 'topic'}-{secrets.token_hex(4)}"
