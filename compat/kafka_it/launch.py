"""Apache Kafka's own integration tests, each on brokers of its own: the shim in launch mode.

    python -m compat.kafka_it.launch [--broker kafka] [--update] [CLASS | CLASS.method …]

Each test gets fresh brokers with the settings that it asks for, may stop and start them, and may
have several. For each broker the shim runs `launch_kafka` or `launch_penstock`. One more process
runs beside several brokers: the controller of Apache Kafka, as in its own test kit, or the member
of etcd that holds the metadata of a Penstock cluster. A broker alone has neither.

It is slow, minutes for a class: `make proof` runs `compat.kafka_it.run`, and this by name.
`PENSTOCK_LAUNCH_LOG` names a file that keeps the output of all brokers.
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
    "org.apache.kafka.clients.admin.DescribeProducersWithBrokerIdTest",
    "org.apache.kafka.clients.admin.RackAwareAutoTopicCreationTest",
    "org.apache.kafka.clients.consumer.ConsumerBounceTest",
    "org.apache.kafka.clients.consumer.ConsumerIntegrationTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerCommitTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerTest",
    "org.apache.kafka.clients.consumer.SaslPlainPlaintextConsumerTest",
    "org.apache.kafka.clients.consumer.ShareConsumerRackAwareTest",
    "org.apache.kafka.clients.consumer.ShareConsumerTest",
    "org.apache.kafka.clients.producer.ProducerFailureHandlingTest",
    "org.apache.kafka.clients.producer.ProducerIdExpirationTest",
    "org.apache.kafka.clients.producer.ProducerSendWhileDeletionTest",
    "org.apache.kafka.clients.security.GroupAuthorizerIntegrationTest",
    "kafka.api.AuthorizerIntegrationTest",
    "kafka.server.ShareFetchAcknowledgeRequestTest",
    "kafka.server.ShareGroupDescribeRequestTest",
    "kafka.server.ShareGroupHeartbeatRequestTest",
    "kafka.server.ShareGroupHeartbeatRequestTest$WithAssignmentBatchingDisabledTest",
)
"""Full names; a command line may leave the package out."""

ONE_BROKER_CLASSES = frozenset({"kafka.api.AuthorizerIntegrationTest"})
"""They have one broker, and their older harness would start a controller for it anyway: on
Penstock it runs alone, without etcd."""


def shim_options(broker: str, class_name: str) -> dict[str, str]:
    """Return the options of the shim for a class, beside the script."""
    is_alone = broker == "penstock" and class_name in ONE_BROKER_CLASSES
    return {} if is_alone else {"external.controller": "true"}


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
        log = os.environ.get("PENSTOCK_LAUNCH_LOG", str(Path(folder) / "brokers.log"))
        options = {
            "external.launch": str(write_script(Path(folder), broker)),
            "external.log": log,
        }
        results: dict[str, Result] = {}
        for group in groups:
            own = options | shim_options(broker, group[1])
            results.update(run_groups([group], own, LIMITS))
        return results


SUITE = Suite("kafka-it launch", FOLDER, run_classes, is_launching=True)

if __name__ == "__main__":
    sys.exit(main(SUITE))
