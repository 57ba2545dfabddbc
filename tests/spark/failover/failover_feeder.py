"""Feeds a topic while its leaders are killed, and remembers the acknowledged values.

Guarantees: `owed` has the values that the brokers acknowledged to a producer outside of
transactions, and the values of transactions whose commit was acknowledged: each of them must be in
the topic once. `aborted` has the values of transactions that were aborted: none of them may be
visible. A transaction whose end is unknown is in neither.

It does NOT repeat a record by itself: producers are idempotent, and repeat by their own retries.
"""

import random
from typing import Final

from confluent_kafka import Message, Producer

from tests.spark.tables.pipeline_feeder import (
    PARTITIONS,
    RECORDS_PER_SECOND,
    TRANSACTION_RECORDS,
    Feeder,
    value_of,
)
from tests.spark.topics import new_producer

BURST: Final = 5
ABORTED_SHARE: Final = 1 / 3
ANSWER_SECONDS: Final = 60


class AckedFeeder(Feeder):
    """A feeder that remembers the answers of the brokers."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self.owed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.given_up: list[str] = []
        """Records outside of transactions that a producer gave up, and why."""
        self.unknown = 0
        """Transactions whose end the producer does not know."""
        super().__init__(bootstrap, topic, seed)  # which starts the producers

    def _plain(self, dice: random.Random) -> None:
        producer = new_producer(self._bootstrap, {"message.timeout.ms": "120000"})

        def answered(error: object, message: Message) -> None:
            if error is None:
                self.owed.add(message.value() or b"")
            else:
                self.given_up.append(str(error))

        while not self._ended.wait(BURST / RECORDS_PER_SECOND):
            for _ in range(BURST):
                partition = dice.randrange(PARTITIONS)
                producer.produce(
                    self._topic, self._value(dice), partition=partition, on_delivery=answered
                )
            producer.poll(0)
        assert producer.flush(ANSWER_SECONDS) == 0

    def _transactions(self, dice: random.Random) -> None:
        settings = {"transactional.id": "feeder", "transaction.timeout.ms": "30000"}
        producer = new_producer(self._bootstrap, settings)
        producer.init_transactions(ANSWER_SECONDS)
        while not self._ended.wait(TRANSACTION_RECORDS / RECORDS_PER_SECOND):
            self._one_transaction(producer, dice)

    def _one_transaction(self, producer: Producer, dice: random.Random) -> None:
        values = [self._value(dice) for _ in range(TRANSACTION_RECORDS)]
        producer.begin_transaction()
        for value in values:
            producer.produce(self._topic, value, partition=dice.randrange(PARTITIONS))
        is_aborted = dice.random() < ABORTED_SHARE
        self.unknown += 1
        if is_aborted:
            producer.flush(ANSWER_SECONDS)  # they are in the log before they are taken back
            producer.abort_transaction(ANSWER_SECONDS)
        else:
            producer.commit_transaction(ANSWER_SECONDS)
        self.unknown -= 1
        (self.aborted if is_aborted else self.owed).update(values)

    def _value(self, dice: random.Random) -> bytes:
        return value_of(next(self._numbers), dice)
