"""Apache Kafka's own integration tests on any broker, through the shim.

    python -m compat.kafka_it.run [--broker kafka] [--update] [CLASS | CLASS.method …]

One class of ours shadows Kafka's class that starts a cluster for each test and points the tests at
a broker that runs already; topics and groups are removed before each test. A test's name is
`Class.method(parameters)[number]`.
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from compat.suite import SHARED, Result, Results, Suite, main
from tests.oracle.cache import built, content_key, progress, run, tool
from tests.oracle.kafka_jars import java, java_version

CLASS_SECONDS_MAX = 1_500
TEST_SECONDS_MAX = 60

CLASSES = (
    "org.apache.kafka.clients.consumer.PlaintextConsumerSubscriptionTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerCommitTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerFetchTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerCloseTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerPollTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerAssignTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerCallbackTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerTest",
    "org.apache.kafka.clients.consumer.ConsumerTopicCreationTest",
    "org.apache.kafka.clients.consumer.ConsumerIntegrationTest",
    "org.apache.kafka.clients.admin.ListOffsetsIntegrationTest",
    "org.apache.kafka.clients.admin.AdminFenceProducersTest",
    "org.apache.kafka.clients.producer.ProducerIntegrationTest",
    "org.apache.kafka.clients.producer.ProducerCompressionTest",
    "org.apache.kafka.clients.TransactionsExpirationTest",
)
"""Full names; a command line may leave the package out."""

PROPERTIES = {
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "60000",
    "group.initial.rebalance.delay.ms": "10",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "log.retention.ms": "-1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transactional.id.expiration.ms": "10000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "producer.id.expiration.ms": "5000",
    "producer.id.expiration.check.interval.ms": "500",
}
"""What the classes ask of their clusters; one broker serves them all, so it gets all of it."""


def prepared() -> Path:
    """The folder with `lib` (the jars of Kafka's tests) and `shim` (our class, compiled)."""
    pom = SHARED / "kafka-it" / "pom.xml"
    shim = SHARED / "kafka-it" / "RaftClusterInvocationContext.java"

    def build(folder: Path) -> None:
        progress("downloading the jars of Apache Kafka's tests (66 MB)")
        maven = tool("mvn", "install Maven (Debian: maven)")
        library = folder / "lib"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={library}"]
        run([maven, "-q", "-B", "-f", pom, *goal])
        javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
        run([javac, "-nowarn", "-d", folder / "shim", "-cp", f"{library}/*", shim])

    return built(f"compat/kafka-it-{content_key(pom, shim, java_version())}", build)


def _selectors(wanted: Sequence[str]) -> list[list[str]]:
    """One group of launcher arguments for each class."""
    if not wanted:
        return [["-c", name] for name in CLASSES]
    by_name = {name.rpartition(".")[2]: name for name in CLASSES}
    groups = []
    for word in wanted:
        short, _, method = word.partition(".")
        full = by_name.get(short)
        if full is None:
            raise SystemExit(f"no class {short}; there are: {', '.join(sorted(by_name))}")
        groups.append(["-c", full])
        if method:
            groups[-1] += ["--include-methodname", f".*{full}#{method}.*"]
    return groups


def _read(report: Path) -> dict[str, Result]:
    results = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        if case.find("skipped") is not None:
            results[name] = Result.SKIPPED
        elif case.find("failure") is not None or case.find("error") is not None:
            results[name] = Result.FAILED
            told = case.find("failure") if case.find("failure") is not None else case.find("error")
            text = (told.get("message") or told.get("type") or "") if told is not None else ""
            print(f"  {name}: {text[:300]}", flush=True)
        else:
            results[name] = Result.PASSED
    return results


def _run_class(bootstrap: str, selectors: Sequence[str], folder: Path) -> dict[str, Result]:
    place = prepared()
    command = [
        java(),
        "-XX:TieredStopAtLevel=1",
        f"-Dexternal.bootstrap={bootstrap}",
        "-cp",
        f"{place / 'shim'}:{place / 'lib'}/*",
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--details=none",
        "--config=junit.jupiter.extensions.autodetection.enabled=true",
        f"--config=junit.jupiter.execution.timeout.default={TEST_SECONDS_MAX}s",
        f"--reports-dir={folder}",
        *selectors,
    ]
    try:
        subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=CLASS_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"  {selectors[1]} did not end in {CLASS_SECONDS_MAX} s")
    results = {}
    for report in folder.glob("TEST-*.xml"):
        results.update(_read(report))
    return results


def run_classes(bootstrap: str, wanted: Sequence[str]) -> Results:
    """Class by class, so that one that hangs costs only itself."""
    results: dict[str, Result] = {}
    for selectors in _selectors(wanted):
        progress(f"kafka-it: {selectors[1].rpartition('.')[2]}")
        with tempfile.TemporaryDirectory(prefix="penstock-kafka-it-") as folder:
            results.update(_run_class(bootstrap, selectors, Path(folder)))
    return results


SUITE = Suite("kafka-it", Path(__file__).resolve().parent, run_classes, PROPERTIES)

if __name__ == "__main__":
    sys.exit(main(SUITE))
