"""The requests of brokers to a share shard, in golden conversations.

`initialize epoch=1 start=0`, `read leader=3`, `write leader=3 epoch=1 start=5 0-9=acknowledged/1`,
`delete`, `summary`. The share-partition is `queue=g/t/0` (group, topic, partition) by default. The
deletion of records that waits ends with `effect done` or `effect failed`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from uuid import UUID

from penstock.coordinator.shares import share_messages as messages
from penstock.coordinator.shares.ports import ShareChange, ShareKey, StateBatch
from penstock.coordinator.shares.settings import ShareSettings
from penstock.coordinator.shares.shard import ShareShard
from penstock.core.errors import NotLeaderError
from penstock.protocol.codec import Message
from penstock.protocol.stored.codec import decode_share_record
from tests.coordinator.conversation import Arguments, Spoken
from tests.coordinator.rig import ShardRig

STATES = {"available": 0, "acknowledged": 2, "archived": 4}
PARTITION = 7
"""The partition of `__share_group_state`."""


class ShareVocabulary:
    """Commands for a share shard. Topics get the ids 1, 2, ... in the order of their creation."""

    def __init__(self) -> None:
        self.settings = ShareSettings()
        self.commands: Mapping[str, Callable[[Arguments], Spoken]] = {
            "initialize": self._initialize,
            "read": self._read,
            "write": self._write,
            "delete": self._delete,
            "summary": self._summary,
        }

    # --- The kind of shard ---

    def make_shard(self) -> ShareShard:
        return ShareShard(self.settings, PARTITION)

    def decode(self, key: bytes, value: bytes | None) -> tuple[Message, Message | None] | None:
        return decode_share_record(key, value)

    def snapshot(self, shard: ShareShard) -> object:
        return shard.partitions

    def configure(self, arguments: Arguments) -> None:
        changes = {name: int(value) for name, value in arguments.items()}
        self.settings = dataclasses.replace(self.settings, **changes)

    def finish(self, rig: ShardRig[ShareShard], arguments: Arguments) -> None:
        result = NotLeaderError("another broker leads it") if "failed" in arguments else None
        rig.finish(rig.effects[0], result)

    def render_bytes(self, value: bytes) -> str | None:
        return None

    # --- Requests of brokers ---

    def _initialize(self, arguments: Arguments) -> Spoken:
        epoch, start = int(arguments.get("epoch", "1")), int(arguments.get("start", "0"))
        return Spoken(messages.initialize_request(_key(arguments), epoch, start), 0)

    def _read(self, arguments: Arguments) -> Spoken:
        return Spoken(messages.read_request(_key(arguments), int(arguments.get("leader", "-1"))), 0)

    def _write(self, arguments: Arguments) -> Spoken:
        change = ShareChange(
            int(arguments.get("epoch", "1")),
            int(arguments.get("leader", "0")),
            int(arguments.get("start", "-1")),
            tuple(_batch(one, state) for one, state in arguments.items() if one[0].isdigit()),
            int(arguments.get("complete", "-1")),
        )
        return Spoken(messages.write_request(_key(arguments), change), 1)

    def _delete(self, arguments: Arguments) -> Spoken:
        return Spoken(messages.delete_request(_key(arguments)), 0)

    def _summary(self, arguments: Arguments) -> Spoken:
        return Spoken(messages.summary_request(_key(arguments), -1), 1)


def _key(arguments: Arguments) -> ShareKey:
    group, topic, partition = arguments.get("queue", "g/1/0").split("/")
    return ShareKey(group, UUID(int=int(topic)), int(partition))


def _batch(offsets: str, state: str) -> StateBatch:
    first, _, last = offsets.partition("-")
    name, _, count = state.partition("/")
    return StateBatch(int(first), int(last), STATES[name], int(count))
