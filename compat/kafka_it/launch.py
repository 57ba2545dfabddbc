"""Apache Kafka's own integration tests, each on brokers of its own: the shim in launch mode.

    python -m compat.kafka_it.launch [--broker kafka] [--update] [CLASS | CLASS.method …]

Each test gets fresh brokers with the settings that it asks for, may stop and start them, and may
have several. For each broker the shim runs `launch_kafka` or `launch_penstock`. Penstock has one
broker: tests that ask for more are skipped, except those of `SHRUNK_CLASSES`. On Apache Kafka a
controller runs beside several brokers, as in Kafka's own test kit.

It is slow, minutes for a class: `make proof` runs `compat.kafka_it.run`, and this by name.
"""

import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from compat.kafka_it.console import FOLDER, TimeLimits, run_groups, selectors
from compat.suite import Result, Results, Suite, main
from tests.oracle.kafka_broker import make_class_data_archive

ROOT = FOLDER.parents[1]
LIMITS = TimeLimits(test_seconds_max=120, class_seconds_max=5_400)
"""A class can have 250 tests, each with a start of a broker."""

CLASSES = (
    "org.apache.kafka.clients.ClientRebootstrapTest",
    "org.apache.kafka.clients.admin.AutoTopicCreationTest",
    "org.apache.kafka.clients.admin.DeleteTopicTest",
    "org.apache.kafka.clients.admin.DescribeAuthorizedOperationsTest",
    "org.apache.kafka.clients.admin.RackAwareAutoTopicCreationTest",
    "org.apache.kafka.clients.consumer.ConsumerBounceTest",
    "org.apache.kafka.clients.consumer.SaslPlainPlaintextConsumerTest",
    "org.apache.kafka.clients.consumer.ShareConsumerRackAwareTest",
    "org.apache.kafka.clients.consumer.ShareConsumerTest",
    "org.apache.kafka.clients.producer.ProducerFailureHandlingTest",
    "org.apache.kafka.clients.producer.ProducerSendWhileDeletionTest",
    "org.apache.kafka.clients.security.GroupAuthorizerIntegrationTest",
    "kafka.api.AuthorizerIntegrationTest",
    "kafka.server.ShareFetchAcknowledgeRequestTest",
    "kafka.server.ShareGroupDescribeRequestTest",
    "kafka.server.ShareGroupHeartbeatRequestTest",
    "kafka.server.ShareGroupHeartbeatRequestTest$WithAssignmentBatchingDisabledTest",
)
"""Full names; a command line may leave the package out."""

OPTIONS = {
    "kafka": {"external.controller": "true"},
    "penstock": {"external.brokers.max": "1"},
}
"""Options of the shim for each kind of broker, beside the script."""

SHRUNK_CLASSES = frozenset({"org.apache.kafka.clients.consumer.SaslPlainPlaintextConsumerTest"})
"""They ask for several brokers and mostly need one: on Penstock they run with one."""


def shrink_options(broker: str, class_name: str) -> dict[str, str]:
    """Return the option that cuts a class to one broker; empty if it runs as it is."""
    is_cut = broker == "penstock" and class_name in SHRUNK_CLASSES
    return {"external.shrink": "true"} if is_cut else {}


def write_script(folder: Path, broker: str) -> Path:
    """Write the program that the shim runs for each broker: Python with our modules."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    module = f"compat.kafka_it.launch_{broker}"
    script = folder / f"launch-{broker}"
    script.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(path)}\n"
        f'exec {shlex.quote(sys.executable)} -m {module} "$@"\n'
    )
    script.chmod(0o755)
    return script


def run_classes(broker: str, wanted: Sequence[str]) -> Results:
    """Run all classes, or the wanted ones, on brokers of this kind."""
    if broker == "kafka":
        make_class_data_archive()
    groups = selectors(CLASSES, wanted)
    with tempfile.TemporaryDirectory(prefix="penstock-launch-") as folder:
        options = {
            "external.launch": str(write_script(Path(folder), broker)),
            "external.log": str(Path(folder) / "brokers.log"),
            **OPTIONS[broker],
        }
        results: dict[str, Result] = {}
        for group in groups:
            own = options | shrink_options(broker, group[1])
            results.update(run_groups([group], own, LIMITS))
        return results


SUITE = Suite("kafka-it launch", FOLDER, run_classes, is_launching=True)

if __name__ == "__main__":
    sys.exit(main(SUITE))
