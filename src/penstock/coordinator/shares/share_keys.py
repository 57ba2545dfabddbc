"""The name of a share-partition as FindCoordinator has it: `group:topicId:partition`. Pure.

The topic id is in Kafka's base64 form. A group id may have colons: the last two are separators. The
partition of `__share_group_state` is that of this text.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from uuid import UUID

from penstock.coordinator.shares.ports import ShareKey

_ID_CHARACTERS: Final = 22
"""Of 16 bytes in base64, without padding."""
_PADDING: Final = "=="
_PARTITION_MAX: Final = 2**31 - 1
_IS_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,12}")


def key_text(key: ShareKey) -> str:
    """The name of a share-partition."""
    topic_id = urlsafe_b64encode(key.topic_id.bytes).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


def parsed_key(text: str) -> ShareKey | None:
    """The share-partition of a name; None if the text is not such a name."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3:
        return None
    group_id, topic_id, partition = parts
    if not group_id.strip() or not _IS_NUMBER.fullmatch(partition):
        return None
    if not -_PARTITION_MAX - 1 <= int(partition) <= _PARTITION_MAX:
        return None
    id_bytes = _id_bytes(topic_id)
    return None if id_bytes is None else ShareKey(group_id, UUID(bytes=id_bytes), int(partition))


def parsed_text(text: str) -> str | None:
    """The name in its only form, such as `g:…:3` for `g:…:+3`; None if the text is not a name."""
    key = parsed_key(text)
    return None if key is None else key_text(key)


def _id_bytes(text: str) -> bytes | None:
    text = text.removesuffix(_PADDING)
    if len(text) != _ID_CHARACTERS or not text.isascii():
        return None
    if not text.replace("-", "").replace("_", "").isalnum():
        return None
    return urlsafe_b64decode(text + _PADDING)
