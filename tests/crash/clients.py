"""The test's end of the clients that run through crashes (`load`), and the reader of everything.

Each client is a child process, so that its threads, warnings and memory are its own. Its output
goes into the ledger as it arrives. librdkafka is imported when it is first used: the fast tests
collect this file too.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from tests.crash.ledger import Ledger, PartitionContent, Sent

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "ledger"
PARTITIONS = 4
TOPIC_SETTINGS = {"segment.bytes": "1048576", "segment.ms": "150", "index.interval.bytes": "512"}
"""Several rolls in each second, and indexes with something in them."""
GIVE_UP_SECONDS = 90
"""A client that was told nothing for so long gives a record up: longer than any round."""
REQUEST_SECONDS = GIVE_UP_SECONDS - 5
"""A client waits so long for the answer to one request. Several brokers need less: a request to a
machine that went silent is repeated at another one."""
BACKOFF_MS = 50
"""Between tries; the usual second would be most of a round."""
PRODUCERS = ("confluent-kafka", "kafka-python", "aiokafka")
READ_SECONDS_MAX = 60.0


class LoadProcess:
    """One client in its process, until `stop`."""

    def __init__(
        self,
        client: str,
        bootstrap: str,
        ledger: Ledger,
        seed: int,
        request_seconds: int = REQUEST_SECONDS,
        command: Sequence[str] | None = None,
    ) -> None:
        """`command` is a program that prints the same lines, without its arguments."""
        self.client = client
        self._ledger = ledger
        program = command or (sys.executable, "-m", "tests.crash.load", client)
        self._process = subprocess.Popen(
            [*program, bootstrap, str(seed), str(request_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONDEVMODE": ""},
        )
        self._complaints: deque[str] = deque(maxlen=40)
        self._readers = [
            threading.Thread(target=self._take_lines),
            threading.Thread(target=self._take_complaints),
        ]
        for reader in self._readers:
            reader.start()

    def _take_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, *words = line.rstrip("\n").split(" ", 3)
            if kind == "w":
                partition, offset, value = words
                self._ledger.saw(int(partition), int(offset), bytes.fromhex(value))
                continue
            number, partition, rest = words
            sent = Sent(self.client, int(number), int(partition))
            if kind == "a":
                self._ledger.acknowledged(sent, int(rest))
            else:
                self._ledger.gave_up(sent, rest)

    def _take_complaints(self) -> None:
        assert self._process.stderr is not None
        self._complaints.extend(self._process.stderr)

    def require_alive(self) -> None:
        """Raise when the client ended by itself."""
        code = self._process.poll()
        assert code is None, f"{self.client} ended with {code}:\n{''.join(self._complaints)}"

    def stop(self, timeout_seconds: float = GIVE_UP_SECONDS) -> None:
        """End it after what is in flight is settled."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_seconds)
        code = self._process.poll()
        self.abandon()
        assert code == 0, f"{self.client} ended with {code}:\n{''.join(self._complaints)}"

    def abandon(self) -> None:
        """End it without waiting for anything; harmless when it has ended."""
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def create_topic(bootstrap: str) -> None:
    """The topic that all rounds of a run use."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, PARTITIONS, 1, config=TOPIC_SETTINGS)
    admin.create_topics([topic])[TOPIC].result(30)


def read_everything(bootstrap: str) -> dict[int, PartitionContent]:
    """Every partition from its beginning to its end of now; the reader checks no checksums."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none: it only assigns",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(PARTITIONS)}
    unfinished = set(found)
    deadline = time.monotonic() + READ_SECONDS_MAX
    try:
        while unfinished:
            assert time.monotonic() < deadline, f"not read to the end: partitions {unfinished}"
            for message in consumer.consume(2_000, timeout=0.5):
                error, partition = message.error(), message.partition()
                offset, value = message.offset(), message.value()
                if error is None and partition is not None and offset is not None:
                    found[partition].append((offset, value if isinstance(value, bytes) else b""))
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(-1 if partition is None else partition)
    finally:
        consumer.close()
    return dict(found)
