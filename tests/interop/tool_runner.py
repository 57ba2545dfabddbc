"""Apache Kafka's command-line tools on one broker, in one Java process: commands in, outputs out.

Guarantees: a command has the same exit code and streams as in its own shell. Only the output of
Kafka's logger is not in them: that goes to `tools.log` of the folder. The caller waits for each
command, and no longer than `COMMAND_SECONDS_MAX`.

It does NOT judge outputs; see tool_texts.py and tool_differences.py.
"""

import functools
import json
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.oracle.cache import OracleError, built, content_key, progress, run, tool
from tests.oracle.kafka_jars import class_path, java_command, java_version

COMMAND_SECONDS_MAX = 90.0
SOURCE = Path(__file__).with_name("KafkaTools.java")

_PACKAGE = "org.apache.kafka.tools"
MAIN_CLASSES = {
    "kafka-broker-api-versions": f"{_PACKAGE}.BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{_PACKAGE}.ClientMetricsCommand",
    "kafka-cluster": f"{_PACKAGE}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{_PACKAGE}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{_PACKAGE}.ConsoleProducer",
    "kafka-consumer-groups": f"{_PACKAGE}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{_PACKAGE}.ConsumerPerformance",
    "kafka-delete-records": f"{_PACKAGE}.DeleteRecordsCommand",
    "kafka-e2e-latency": f"{_PACKAGE}.EndToEndLatency",
    "kafka-features": f"{_PACKAGE}.FeatureCommand",
    "kafka-get-offsets": f"{_PACKAGE}.GetOffsetShell",
    "kafka-groups": f"{_PACKAGE}.GroupsCommand",
    "kafka-leader-election": f"{_PACKAGE}.LeaderElectionCommand",
    "kafka-log-dirs": f"{_PACKAGE}.LogDirsCommand",
    "kafka-metadata-quorum": f"{_PACKAGE}.MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{_PACKAGE}.ProducerPerformance",
    "kafka-reassign-partitions": f"{_PACKAGE}.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": f"{_PACKAGE}.consumer.group.ShareGroupCommand",
    "kafka-streams-groups": f"{_PACKAGE}.streams.StreamsGroupCommand",
    "kafka-topics": f"{_PACKAGE}.TopicCommand",
    "kafka-transactions": f"{_PACKAGE}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{_PACKAGE}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{_PACKAGE}.VerifiableProducer",
}
"""What Kafka's shell scripts start, by the name of the script without `.sh`."""

IN_A_PROCESS_OF_THEIR_OWN = frozenset({"kafka-verifiable-producer"})
"""Tools that say the most when their Java process ends."""


class Output(NamedTuple):
    """The result of one command."""

    code: int
    out: str
    err: str


@functools.cache
def compiled() -> Path:
    """The folder with the compiled driver."""

    def build(folder: Path) -> None:
        progress("compiling the driver of Kafka's tools")
        javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
        run([javac, "-nowarn", "-d", folder, "-cp", class_path(), SOURCE])

    return built(f"interop/kafka-tools-{content_key(SOURCE, java_version(), class_path())}", build)


class ToolRunner:
    """The Java process; a context manager."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self._log_path = folder / "tools.log"
        command = java_command("KafkaTools", appended_to_class_path=compiled(), log_level="warn")
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                bufsize=1,
                cwd=folder,
            )

    def run(self, name: str, *arguments: str, text: str = "") -> Output:
        """Run one tool with these arguments; `text` is its standard input."""
        if name in IN_A_PROCESS_OF_THEIR_OWN:
            return _run_alone(name, arguments, text)
        question = {"tool": MAIN_CLASSES[name], "arguments": arguments, "input": text}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        # One line for one line: nothing is left in the buffer of an earlier answer.
        ready, _, _ = select.select([self._process.stdout], [], [], COMMAND_SECONDS_MAX)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            log = self._log_path.read_text(errors="replace")[-2000:]
            raise OracleError(f"no answer from {name} {' '.join(arguments)}:\n{log}")
        return Output(**json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Leaves the process, its pipes closed: it has no more output.
        self._process.kill()
        self._process.communicate()


def _run_alone(name: str, arguments: Sequence[str], text: str) -> Output:
    done = subprocess.run(
        java_command(MAIN_CLASSES[name], arguments, log_level="off"),
        input=text,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    return Output(done.returncode, done.stdout, done.stderr)
