"""The requests of producers to a transaction shard, in golden conversations.

`init`, `add t-0,u-1 producer=1000/0`, `end commit producer=1000/0`, `describe`, `list`. The first
effect that waits ends with `effect id=1000` or `effect done` or `effect failed`. `settings epoch=N`
starts with a producer 1000 of `t` that has been through all epochs before N.
"""

import dataclasses
from collections.abc import Callable, Mapping

from penstock.coordinator.transactions.effects import NextProducerId
from penstock.coordinator.transactions.settings import TransactionSettings
from penstock.coordinator.transactions.shard import TransactionShard
from penstock.coordinator.transactions.transaction import created, initialized, record_of
from penstock.core.errors import RequestTimedOutError
from penstock.protocol.codec import Message
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.stored.codec import decode_transaction_record
from tests.coordinator.conversation import Arguments, Spoken
from tests.coordinator.rig import START_MS, ShardRig

COORDINATOR_EPOCH = 7


class TransactionVocabulary:
    """Commands for a transaction shard."""

    def __init__(self) -> None:
        self.settings = TransactionSettings()
        self._first_epoch: int | None = None
        self.commands: Mapping[str, Callable[[Arguments], Spoken]] = {
            "init": self._init,
            "add": self._add,
            "verify": self._add,
            "end": self._end,
            "describe": self._describe,
            "list": self._list,
        }

    # --- The kind of shard ---

    def make_shard(self) -> TransactionShard:
        shard = TransactionShard(self.settings, COORDINATOR_EPOCH)
        if self._first_epoch is not None:
            fresh = created(1000, 60_000, START_MS)
            used = initialized(fresh, 1000, self._first_epoch, 60_000, START_MS)
            shard.replay(record_of("t", used), None, -1)
        return shard

    def decode(self, key: bytes, value: bytes | None) -> tuple[Message, Message | None] | None:
        return decode_transaction_record(key, value)

    def snapshot(self, shard: TransactionShard) -> object:
        return shard.transactions

    def configure(self, arguments: Arguments) -> None:
        changes = {name: int(value) for name, value in arguments.items()}
        self._first_epoch = changes.pop("epoch", None)
        self.settings = dataclasses.replace(self.settings, **changes)

    def finish(self, rig: ShardRig[TransactionShard], arguments: Arguments) -> None:
        effect = rig.effects[0]
        if "failed" in arguments:
            rig.finish(effect, RequestTimedOutError("nobody answers"))
        elif isinstance(effect, NextProducerId):
            rig.finish(effect, int(arguments["id"]))
        else:
            assert "done" in arguments
            rig.finish(effect, None)

    def render_bytes(self, value: bytes) -> str | None:
        return None

    # --- Requests of producers ---

    def _init(self, arguments: Arguments) -> Spoken:
        producer_id, epoch = _producer(arguments, "-1/-1")
        return Spoken(
            InitProducerIdRequest(
                transactional_id=arguments.get("transaction", "t"),
                transaction_timeout_ms=int(arguments.get("timeout", "60000")),
                producer_id=producer_id,
                producer_epoch=epoch,
            ),
            5,
        )

    def _add(self, arguments: Arguments) -> Spoken:
        producer_id, epoch = _producer(arguments)
        partitions = arguments["partitions"].split(",")
        asks = AddPartitionsToTxnTransaction(
            transactional_id=arguments.get("transaction", "t"),
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only="only" in arguments,
            topics=tuple(
                AddPartitionsToTxnTopic(name=topic, partitions=(int(number),))
                for topic, _, number in (name.rpartition("-") for name in partitions)
            ),
        )
        version = int(arguments.get("version", "5"))
        return Spoken(AddPartitionsToTxnRequest(transactions=(asks,)), version)

    def _end(self, arguments: Arguments) -> Spoken:
        producer_id, epoch = _producer(arguments)
        assert ("commit" in arguments) != ("abort" in arguments)
        request = EndTxnRequest(
            transactional_id=arguments.get("transaction", "t"),
            producer_id=producer_id,
            producer_epoch=epoch,
            committed="commit" in arguments,
        )
        return Spoken(request, int(arguments.get("version", "5")))

    def _describe(self, arguments: Arguments) -> Spoken:
        ids = tuple(arguments.get("transactions", "t").split(","))
        return Spoken(DescribeTransactionsRequest(transactional_ids=ids), 0)

    def _list(self, arguments: Arguments) -> Spoken:
        def words(name: str) -> tuple[str, ...]:
            return tuple(word for word in arguments.get(name, "").split(",") if word)

        request = ListTransactionsRequest(
            state_filters=words("states"),
            producer_id_filters=tuple(int(word) for word in words("producers")),
            duration_filter=int(arguments.get("longer", "-1")),
            transactional_id_pattern=arguments.get("pattern"),
        )
        return Spoken(request, 2)


def _producer(arguments: Arguments, default: str = "") -> tuple[int, int]:
    producer_id, _, epoch = arguments.get("producer", default).partition("/")
    return int(producer_id), int(epoch)
