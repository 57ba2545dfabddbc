"""Apache Kafka's own integration tests on any broker, through the shim in shared mode.

    python -m compat.kafka_it.run [--broker kafka] [--update] [CLASS | CLASS.method …]

One class of ours shadows Kafka's class that starts a cluster for each test and points the tests at
a broker that runs already; topics and groups are removed before each test. A test's name is
`Class.method(parameters)[number]`. Tests that need brokers of their own are in `launch`.
"""

import sys
from collections.abc import Sequence

from compat.kafka_it.console import FOLDER, TimeLimits, run_groups, selectors
from compat.suite import Results, Suite, main

LIMITS = TimeLimits(test_seconds_max=60)

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


def run_classes(bootstrap: str, wanted: Sequence[str]) -> Results:
    """Run all classes, or the wanted ones, on the broker at this address."""
    options = {"external.bootstrap": bootstrap}
    return run_groups(selectors(CLASSES, wanted), options, LIMITS)


SUITE = Suite("kafka-it", FOLDER, run_classes, PROPERTIES)

if __name__ == "__main__":
    sys.exit(main(SUITE))
