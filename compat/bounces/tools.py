"""The programs of Apache Kafka's system tests, each as a process: producer, consumer, copier.

Guarantees: a `Tool` runs one class of the Kafka jars, and `events` has the JSON documents that it
has printed so far. `stop` ends it by SIGTERM, so that it closes its clients and prints its totals.

It does NOT judge: `verdicts` does.
"""

import contextlib
import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.oracle.cache import OracleError
from tests.oracle.kafka_jars import java_command

STOP_SECONDS_MAX: Final = 60.0
PACKAGE: Final = "org.apache.kafka.tools"
PRODUCER_SETTINGS: Final = {
    "enable.idempotence": "true",
    "retries": "2147483647",
    "delivery.timeout.ms": "120000",
    "request.timeout.ms": "10000",
    "linger.ms": "5",
}
"""The tool itself sends a record once; system tests of Kafka give it retries in the same way."""

Event = Mapping[str, Any]


class Tool:
    """One process; a context manager that kills it at the end if it still runs."""

    def __init__(self, name: str, words: Sequence[str], folder: Path) -> None:
        self.name = name
        self._output = folder / f"{name}.jsonl"
        self._errors = folder / f"{name}.log"
        main_class, *arguments = words
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                java_command(f"{PACKAGE}.{main_class}", arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=folder,
            )

    def events(self) -> list[Event]:
        """Every document that is printed whole."""
        found: list[Event] = []
        for line in self._output.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                document = json.loads(line)
                if isinstance(document, dict):
                    found.append(document)
        return found

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def require_running(self) -> None:
        """Raise when the process ended by itself."""
        if self.has_ended:
            raise OracleError(f"{self.name} ended with {self._process.returncode}:\n{self.tail()}")

    def wait(self, seconds: float) -> int:
        """Wait for the end; return the exit code."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise OracleError(f"{self.name} runs after {seconds:.0f} s:\n{self.tail()}") from error

    def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        self._process.send_signal(signal.SIGTERM)
        self.wait(STOP_SECONDS_MAX)

    def tail(self) -> str:
        """The last lines of both streams."""
        texts = (path.read_text(errors="replace")[-2_000:] for path in (self._output, self._errors))
        return "\n".join(texts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.has_ended:
            self._process.kill()
            self._process.wait()


def producer(
    folder: Path, bootstrap: str, topic: str, *, throughput: int, messages: int = -1
) -> Tool:
    """VerifiableProducer with acks=all."""
    settings = folder / "producer.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in PRODUCER_SETTINGS.items()))
    words = ["VerifiableProducer", "--bootstrap-server", bootstrap, "--topic", topic]
    words += ["--acks", "-1", "--command-config", str(settings), "--max-messages", str(messages)]
    return Tool(f"producer-{topic}", [*words, "--throughput", str(throughput)], folder)


def consumer(
    folder: Path, bootstrap: str, topic: str, *, group: str, protocol: str, number: int
) -> Tool:
    """VerifiableConsumer that prints each record, and commits after each poll."""
    words = ["VerifiableConsumer", "--bootstrap-server", bootstrap, "--topic", topic, "--verbose"]
    words += ["--group-id", group, "--group-protocol", protocol, "--reset-policy", "earliest"]
    if protocol == "classic":
        words += ["--session-timeout", "30000"]
    return Tool(f"consumer-{group}-{number}", words, folder)


def copier(folder: Path, bootstrap: str, source: str, target: str, *, partition: int) -> Tool:
    """TransactionalMessageCopier of one partition; it aborts some transactions at random."""
    words = ["TransactionalMessageCopier", "--broker-list", bootstrap, "--input-topic", source]
    words += ["--input-partition", str(partition), "--output-topic", target]
    words += ["--transactional-id", f"copier-{partition}", "--consumer-group", "copiers"]
    words += ["--transaction-size", "50", "--transaction-timeout", "60000"]
    words += ["--enable-random-aborts", "--use-group-metadata"]
    return Tool(f"copier-{partition}", words, folder)
