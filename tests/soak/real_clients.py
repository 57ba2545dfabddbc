"""Real clients at a low rate: `real_clients.py PORT [forgetful]`. All are librdkafka: it retries.

An idempotent producer (acks=all), a producer of transactions of which every third is aborted, and
two groups that read the ledger and commit, one by each group protocol. At the end all acknowledged
records are compared with the log, the records of read_committed consumers with the committed ones,
and each group must have read every record. `hold` stops the writers and waits until they are
settled, `go` lets them continue: librdkafka does not report errors that it retries. `forgetful`
readers leave some records out of their report: for the test of the check alone.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.crash.clients import read_everything
from tests.crash.ledger import Ledger, PartitionContent, Sent
from tests.soak.comparison import Place, compared, not_shown
from tests.soak.scene import LEDGER, LEDGER_PARTITIONS, MOVES
from tests.soak.worker import serve

HOST = "127.0.0.1"
NICENESS = 5
SETTLE_SECONDS = 60.0
RECORDS_PER_SECOND = 20
TRANSACTION_SECONDS = 0.5
RECORDS_IN_TRANSACTION = 5
ABORTED_EVERY = 3
FORGOTTEN_EVERY = 100
FORGETFUL_SECONDS = 5.0
PROTOCOLS = ("classic", "consumer")
UNEXPECTED_MAX = 20


class RealClients:
    """All of them, each on its thread."""

    def __init__(self, bootstrap: str, *, is_forgetful: bool = False) -> None:
        self._bootstrap = bootstrap
        self._is_forgetful = is_forgetful
        self._is_over = threading.Event()
        self._may_write = threading.Event()
        self._may_write.set()
        self._are_groups_over = threading.Event()
        self._writing = threading.Lock()
        self._moving = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._readers: list[threading.Thread] = []
        self.ledger = Ledger()
        self.committed: set[bytes] = set()
        self.aborted_count = 0
        self.shown: dict[str, set[Place]] = {name: set() for name in PROTOCOLS}
        self.errors: Counter[str] = Counter()
        self.unexpected: list[str] = []
        idempotent = {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 120_000}
        self._producer = Producer(self._settings(**idempotent))

    def _settings(self, **more: object) -> dict[str, object]:
        return {
            "bootstrap.servers": self._bootstrap,
            "error_cb": self._on_error,
            "log_level": 0,
            **more,
        }

    def _on_error(self, error: KafkaError) -> None:
        self.errors[error.name()] += 1

    # --- Commands of the leader ---

    def start(self) -> dict[str, bool]:
        """Begin, all at once; returns when everybody is at work."""
        for work in (self._produce, self._move):
            self._threads.append(threading.Thread(target=self._guarded, args=(work,), daemon=True))
        for protocol in PROTOCOLS:
            reader = threading.Thread(target=self._guarded, args=(self._read, protocol))
            reader.daemon = True
            self._readers.append(reader)
        for thread in (*self._threads, *self._readers):
            thread.start()
        deadline = time.monotonic() + SETTLE_SECONDS
        while not (self.committed and all(self.shown.values())):
            if time.monotonic() > deadline:
                self.unexpected.append("the real clients were not at work in time")
                break
            time.sleep(0.1)
        return {"started": True}

    def hold(self) -> dict[str, int]:
        """Write nothing more, and wait until what was written is settled."""
        self._may_write.clear()
        with self._moving, self._writing:
            return {"unsettled": self._producer.flush(SETTLE_SECONDS)}

    def go(self) -> dict[str, bool]:
        """Write again."""
        self._may_write.set()
        return {"going": True}

    def stop(self) -> dict[str, object]:
        """End writing, let the groups finish, compare everything."""
        self._is_over.set()
        self._may_write.set()
        for thread in self._threads:
            thread.join(SETTLE_SECONDS)
        unsettled = self._producer.flush(SETTLE_SECONDS)
        log = read_everything(self._bootstrap)
        self._wait_for_groups(log)
        self._are_groups_over.set()
        for reader in self._readers:
            reader.join(SETTLE_SECONDS)
        found = Counter(self._read_moves())
        wrong = [value for value, count in found.items() if count != 1]
        wrong += list(self.committed ^ set(found))
        return {
            **compared(self.ledger, log, self.shown),
            "unsettled": unsettled,
            "given_up": self.ledger.given_up[:5],
            "transactions_committed": len(self.committed) // RECORDS_IN_TRANSACTION,
            "transactions_aborted": self.aborted_count,
            "moves_wrong": len(wrong),
            "errors": dict(self.errors),
            "unexpected": self.unexpected,
        }

    # --- Threads ---

    def _guarded(self, work: Callable[..., None], *arguments: str) -> None:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 (reported at the end)
            self.unexpected.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _produce(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._may_write.wait()
            with self._writing:
                if not self._may_write.is_set():
                    continue
                sent = Sent("librdkafka", number, number % LEDGER_PARTITIONS)
                self._producer.produce(
                    LEDGER, sent.value(), partition=sent.partition, on_delivery=self._note(sent)
                )
                number += 1
                self._producer.poll(0)
            time.sleep(1 / RECORDS_PER_SECOND)

    def _note(self, sent: Sent) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self.ledger.gave_up(sent, str(error))
            else:
                self.ledger.acknowledged(sent, offset)

        return note

    def _move(self) -> None:
        producer = Producer(self._settings(**{"transactional.id": "soak"}))
        producer.init_transactions(SETTLE_SECONDS)
        number = 0
        while not self._is_over.is_set():
            self._may_write.wait()
            with self._moving:
                if self._may_write.is_set():
                    self._one_transaction(producer, number)
                    number += 1
            time.sleep(TRANSACTION_SECONDS)

    def _one_transaction(self, producer: Producer, number: int) -> None:
        values = [f"{number}/{part}".encode() for part in range(RECORDS_IN_TRANSACTION)]
        producer.begin_transaction()
        for part, value in enumerate(values):
            producer.produce(MOVES, value, partition=part % 2)
        if number % ABORTED_EVERY == 0:
            producer.flush(SETTLE_SECONDS)
            producer.abort_transaction(SETTLE_SECONDS)
            self.aborted_count += 1
        else:
            producer.commit_transaction(SETTLE_SECONDS)
            self.committed.update(values)

    def _read(self, protocol: str) -> None:
        settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer(
            self._settings(
                **settings, **{"group.id": f"soak-{protocol}", "group.protocol": protocol}
            )
        )
        consumer.subscribe([LEDGER])
        shown, commit_at = self.shown[protocol], time.monotonic() + 1.0
        try:
            while not self._are_groups_over.is_set():
                for message in consumer.consume(500, timeout=0.25):
                    if message.error() is None:
                        self._saw(message, shown)
                if time.monotonic() > commit_at:
                    commit_at = time.monotonic() + 1.0
                    self._commit(consumer)
        finally:
            consumer.close()

    def _saw(self, message: Message, shown: set[Place]) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        if self._is_forgetful and offset % FORGOTTEN_EVERY == 0:
            return
        shown.add((partition, offset))
        self.ledger.saw(partition, offset, value)

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            # Nothing to commit yet, or the disk is full: the next one covers it.
            self.errors[f"commit: {error.args[0].name()}"] += 1

    # --- The end ---

    def _wait_for_groups(self, log: Mapping[int, PartitionContent]) -> None:
        """Until both groups were shown everything, or were given the time for it."""
        deadline = time.monotonic() + (FORGETFUL_SECONDS if self._is_forgetful else SETTLE_SECONDS)
        while time.monotonic() < deadline:
            shown = {name: found.copy() for name, found in self.shown.items()}
            if not any(not_shown(log, shown).values()):
                return
            time.sleep(0.2)

    def _read_moves(self) -> list[bytes]:
        """Every committed record of the topic of transactions."""
        consumer = Consumer(
            self._settings(
                **{
                    "group.id": "none: it only assigns",
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "enable.partition.eof": True,
                    "enable.auto.commit": False,
                }
            )
        )
        consumer.assign([TopicPartition(MOVES, partition, 0) for partition in range(2)])
        found: list[bytes] = []
        unfinished = {0, 1}
        deadline = time.monotonic() + SETTLE_SECONDS
        try:
            while unfinished and time.monotonic() < deadline:
                for message in consumer.consume(1_000, timeout=0.5):
                    error, value = message.error(), message.value()
                    if error is None and isinstance(value, bytes):
                        found.append(value)
                    elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                        unfinished.discard(message.partition())
        finally:
            consumer.close()
        return found


def main() -> None:
    os.nice(NICENESS)
    is_forgetful = sys.argv[2:] == ["forgetful"]
    clients = RealClients(f"{HOST}:{sys.argv[1]}", is_forgetful=is_forgetful)
    serve({"start": clients.start, "hold": clients.hold, "go": clients.go, "stop": clients.stop})


if __name__ == "__main__":
    main()
