"""The script of commands that both brokers get: Apache Kafka's tools as people use them.

A line is a command in a shell, without the address of the broker, which is added. `{folder}` is a
folder with the files that `FILES` names. Lines run in this order on an empty broker, and each may
rely on the results of the earlier ones. `Held` lines need a client that is connected meanwhile: see
test_kafka_tools.py.

It does not define the output: both brokers print the same, or tool_differences.py has the
difference.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

ORDERS = "red:1\ngreen:2\nblue:3\nred:4\ngreen:5\nblue:6\n"


class Step(NamedTuple):
    """One command."""

    line: str
    text: str = ""
    """Its standard input."""
    held: str = ""
    """Who else is connected: a `member` of a group, a `transaction` that is open, `another` one."""


FILES: Final[Mapping[str, str]] = {
    "delete.json": json.dumps(
        {
            "partitions": [{"topic": "orders", "partition": 0, "offset": 1}],
            "version": 1,
        }
    ),
    "delete-too-much.json": json.dumps(
        {"partitions": [{"topic": "orders", "partition": 0, "offset": 1000}], "version": 1}
    ),
    "topics.json": json.dumps({"topics": [{"topic": "orders"}], "version": 1}),
    "same-place.json": json.dumps(
        {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}], "version": 1}
    ),
    "elsewhere.json": json.dumps(
        {"partitions": [{"topic": "orders", "partition": 0, "replicas": [7]}], "version": 1}
    ),
    "elect.json": json.dumps({"partitions": [{"topic": "orders", "partition": 0}]}),
}
"""What tools read from files."""


def _steps(*lines: str, held: str = "") -> tuple[Step, ...]:
    return tuple(Step(line, held=held) for line in lines)


_CLUSTER = _steps(
    "kafka-cluster cluster-id",
    "kafka-cluster list-endpoints",
    "kafka-cluster unregister --id 99",
    "kafka-broker-api-versions",
    "kafka-features describe",
    "kafka-metadata-quorum describe --status",
    "kafka-metadata-quorum describe --replication",
)

_TOPICS = _steps(
    "kafka-topics --list",
    "kafka-topics --create --topic orders --partitions 3 --replication-factor 1"
    " --config retention.ms=600000",
    "kafka-topics --create --topic orders",
    "kafka-topics --create --topic orders --if-not-exists",
    "kafka-topics --create --topic placed --replica-assignment 1,1",
    "kafka-topics --create --topic with_two.words",
    "kafka-topics --create --topic single",
    "kafka-topics --create --topic compacted --config cleanup.policy=compact"
    " --config min.compaction.lag.ms=1000",
    "kafka-topics --create --topic wrong --config retention.ms=soon",
    "kafka-topics --create --topic wrong --config no.such.setting=1",
    "kafka-topics --create --topic wrong --config cleanup.policy=shred",
    "kafka-topics --create --topic wrong --config segment.bytes=1",
    "kafka-topics --create --topic wrong! --partitions 1",
    "kafka-topics --create --topic wrong --replication-factor 3",
    "kafka-topics --create --topic wrong --partitions 0",
    "kafka-topics --create --topic wrong --replica-assignment 7",
    "kafka-topics --list",
    "kafka-topics --list --exclude-internal",
    "kafka-topics --list --topic orders",
    "kafka-topics --describe",
    "kafka-topics --describe --topic orders",
    "kafka-topics --describe --topic orders|placed",
    "kafka-topics --describe --topic nope",
    "kafka-topics --describe --topic nope --if-exists",
    "kafka-topics --describe --topics-with-overrides",
    "kafka-topics --describe --under-replicated-partitions",
    "kafka-topics --describe --unavailable-partitions",
    "kafka-topics --describe --under-min-isr-partitions",
    "kafka-topics --describe --at-min-isr-partitions",
    "kafka-topics --describe --topic orders --partition-size-limit-per-response 1",
    "kafka-topics --alter --topic orders --partitions 5",
    "kafka-topics --alter --topic orders --partitions 5",
    "kafka-topics --alter --topic orders --partitions 2",
    "kafka-topics --alter --topic nope --partitions 2",
    "kafka-topics --alter --topic nope --partitions 2 --if-exists",
    "kafka-topics --alter --topic placed --partitions 3 --replica-assignment 1,1,1",
    "kafka-topics --alter --topic placed --partitions 4 --replica-assignment 1,1,1,7",
    "kafka-topics --describe --topic orders",
    "kafka-topics --delete --topic placed",
    "kafka-topics --delete --topic nope",
    "kafka-topics --delete --topic nope --if-exists",
    "kafka-topics --list",
)

_RECORDS = (
    Step(
        "kafka-console-producer --topic orders --reader-property parse.key=true"
        " --reader-property key.separator=:",
        ORDERS,
    ),
    Step("kafka-console-producer --topic compacted", "no key\n"),
    Step("kafka-console-producer --topic single", "one\n"),
    *_steps(
        "kafka-console-consumer --topic orders --from-beginning --max-messages 6 --timeout-ms 20000"
        " --group readers --formatter-property print.key=true"
        " --formatter-property print.partition=true --formatter-property print.offset=true",
        "kafka-console-consumer --topic orders --partition 0 --offset earliest --timeout-ms 1000",
        "kafka-get-offsets --topic orders",
        "kafka-get-offsets --topic orders --time -2",
        "kafka-get-offsets --topic orders --time earliest",
        "kafka-get-offsets --topic single --time max-timestamp",
        "kafka-get-offsets --topic orders --time earliest-local",
        "kafka-get-offsets --topic orders --time latest-tiered",
        "kafka-get-offsets --topic orders --time 0",
        "kafka-get-offsets --topic orders --time 99999999999999",
        "kafka-get-offsets --topic-partitions orders:0-2,compacted",
        "kafka-get-offsets --topic nope",
        "kafka-get-offsets --exclude-internal-topics",
        "kafka-delete-records --offset-json-file {folder}/delete.json",
        "kafka-delete-records --offset-json-file {folder}/delete-too-much.json",
        "kafka-get-offsets --topic orders --time earliest",
        "kafka-log-dirs --describe --topic-list orders",
        "kafka-log-dirs --describe --topic-list orders,nope --broker-list 1",
        "kafka-log-dirs --describe --broker-list 7",
    ),
)

_CONFIGS = _steps(
    "kafka-configs --describe --entity-type topics --entity-name orders",
    "kafka-configs --describe --entity-type topics",
    "kafka-configs --describe --entity-type topics --entity-name orders --all",
    "kafka-configs --describe --entity-type topics --entity-name nope",
    "kafka-configs --alter --entity-type topics --entity-name orders"
    " --add-config retention.ms=700000,segment.bytes=2097152",
    "kafka-configs --alter --entity-type topics --entity-name orders"
    " --add-config cleanup.policy=[compact,delete]",
    "kafka-configs --alter --entity-type topics --entity-name orders"
    " --add-config retention.ms=soon",
    "kafka-configs --alter --entity-type topics --entity-name orders"
    " --add-config no.such.setting=1",
    "kafka-configs --alter --entity-type topics --entity-name orders"
    " --add-config min.compaction.lag.ms=5,max.compaction.lag.ms=4",
    "kafka-configs --alter --entity-type topics --entity-name nope --add-config retention.ms=1",
    "kafka-configs --describe --entity-type topics --entity-name orders",
    "kafka-configs --alter --entity-type topics --entity-name orders"
    " --delete-config retention.ms,segment.bytes",
    "kafka-configs --alter --entity-type topics --entity-name orders --delete-config flush.ms",
    "kafka-configs --alter --entity-type topics --entity-name orders --delete-config no.such.one",
    "kafka-configs --describe --entity-type topics --entity-name orders",
    "kafka-topics --describe --topics-with-overrides",
    "kafka-configs --describe --entity-type brokers",
    "kafka-configs --describe --entity-type brokers --entity-name 1",
    "kafka-configs --describe --entity-type brokers --entity-default",
    "kafka-configs --describe --entity-type brokers --entity-name 7",
    "kafka-configs --describe --entity-type broker-loggers --entity-name 1",
    "kafka-configs --describe --entity-type groups",
    "kafka-configs --alter --entity-type groups --entity-name readers"
    " --add-config consumer.session.timeout.ms=50000",
    "kafka-configs --alter --entity-type groups --entity-name readers"
    " --add-config consumer.session.timeout.ms=1",
    "kafka-configs --alter --entity-type groups --entity-name readers --add-config no.such=1",
    "kafka-configs --describe --entity-type groups",
    "kafka-configs --describe --entity-type groups --entity-name readers",
    "kafka-configs --alter --entity-type groups --entity-name readers"
    " --delete-config consumer.session.timeout.ms",
    "kafka-configs --describe --entity-type groups --entity-name readers",
    "kafka-configs --alter --entity-type clients --entity-name app"
    " --add-config producer_byte_rate=1048576,request_percentage=50",
    "kafka-configs --describe --entity-type clients --entity-name app",
    "kafka-configs --alter --entity-type clients --entity-name app"
    " --delete-config producer_byte_rate,request_percentage",
    "kafka-configs --describe --entity-type clients --entity-name app",
    "kafka-configs --describe --entity-type client-metrics",
    "kafka-client-metrics --list",
    "kafka-client-metrics --describe",
)

_BROKER_CONFIGS = _steps(
    "kafka-configs --alter --entity-type brokers --entity-name 1"
    " --add-config log.retention.ms=800000",
    "kafka-configs --describe --entity-type brokers --entity-name 1",
    "kafka-configs --describe --entity-type topics --entity-name with_two.words --all",
    "kafka-configs --alter --entity-type brokers --entity-default"
    " --add-config log.retention.ms=900000,message.max.bytes=2000000",
    "kafka-configs --describe --entity-type brokers --entity-default",
    "kafka-configs --describe --entity-type brokers --entity-name 1",
    "kafka-configs --alter --entity-type brokers --entity-name 1 --add-config node.id=5",
    "kafka-configs --alter --entity-type brokers --entity-name 1"
    " --add-config log.retention.ms=soon",
    "kafka-configs --alter --entity-type brokers --entity-name 1 --delete-config log.retention.ms",
    "kafka-configs --describe --entity-type brokers --entity-name 1",
    "kafka-configs --alter --entity-type brokers --entity-default"
    " --delete-config log.retention.ms,message.max.bytes",
    "kafka-configs --describe --entity-type brokers --entity-default",
)

_GROUPS = (
    *_steps(
        "kafka-consumer-groups --list",
        "kafka-consumer-groups --list --state",
        "kafka-consumer-groups --list --state stable",
        "kafka-consumer-groups --list --type",
        "kafka-consumer-groups --list --type consumer",
        "kafka-groups --list",
        "kafka-groups --list --group-type classic",
        "kafka-consumer-groups --describe --group readers",
        "kafka-consumer-groups --describe --group readers --state",
        "kafka-consumer-groups --describe --group readers --members",
        "kafka-consumer-groups --describe --group nope",
        "kafka-consumer-groups --describe --all-groups",
    ),
    *_steps(
        "kafka-consumer-groups --list --state --type",
        "kafka-consumer-groups --describe --group held",
        "kafka-consumer-groups --describe --group held --state --verbose",
        "kafka-consumer-groups --describe --group held --members --verbose",
        "kafka-consumer-groups --delete --group held",
        "kafka-consumer-groups --reset-offsets --group held --topic orders --to-earliest --execute",
        held="member",
    ),
    *_steps(
        "kafka-consumer-groups --reset-offsets --group readers --topic orders --to-earliest"
        " --dry-run",
        "kafka-consumer-groups --reset-offsets --group readers --topic orders:0 --to-offset 1"
        " --execute",
        "kafka-consumer-groups --reset-offsets --group readers --topic orders --shift-by -1"
        " --execute --export",
        "kafka-consumer-groups --reset-offsets --group readers --topic orders"
        " --to-datetime 2020-01-01T00:00:00.000 --dry-run",
        "kafka-consumer-groups --reset-offsets --group readers --topic orders --by-duration P1D"
        " --dry-run",
        "kafka-consumer-groups --reset-offsets --group readers --topic orders --to-latest"
        " --execute",
        "kafka-consumer-groups --reset-offsets --group readers --topic nope --to-latest --execute",
        "kafka-consumer-groups --reset-offsets --group fresh --topic orders --to-current --execute",
        "kafka-consumer-groups --describe --group readers --offsets",
        "kafka-consumer-groups --delete-offsets --group readers --topic orders:0",
        "kafka-consumer-groups --delete-offsets --group readers --topic nope",
        "kafka-consumer-groups --delete-offsets --group nope --topic orders",
        "kafka-consumer-groups --describe --group readers",
        "kafka-consumer-groups --delete --group readers",
        "kafka-consumer-groups --delete --group nope",
        "kafka-consumer-groups --validate-regex orders.*",
        "kafka-streams-groups --list",
        "kafka-streams-groups --describe --group nope",
    ),
)

_SHARE_GROUPS = _steps(
    "kafka-share-groups --list",
    "kafka-share-groups --describe --group nope",
    "kafka-share-groups --reset-offsets --group work --topic orders --to-earliest --dry-run",
    "kafka-share-groups --reset-offsets --group work --topic orders --to-earliest --execute",
    "kafka-share-groups --reset-offsets --group work --topic nope --to-earliest --execute",
    "kafka-share-groups --list",
    "kafka-share-groups --list --state",
    "kafka-share-groups --list --state stable",
    "kafka-groups --list --group-type share",
    "kafka-groups --list --share",
    "kafka-share-groups --describe --group work",
    "kafka-share-groups --describe --group work --offsets --verbose",
    "kafka-share-groups --describe --group work --members",
    "kafka-share-groups --describe --group work --state",
    "kafka-share-groups --describe --all-groups --state",
    "kafka-consumer-groups --describe --group work",
    "kafka-share-groups --reset-offsets --group work --topic orders --to-latest --execute",
    "kafka-share-groups --describe --group work --offsets",
    "kafka-configs --alter --entity-type groups --entity-name work"
    " --add-config share.auto.offset.reset=earliest,share.delivery.count.limit=3",
    "kafka-configs --alter --entity-type groups --entity-name work"
    " --add-config share.isolation.level=nope",
    "kafka-configs --alter --entity-type groups --entity-name work"
    " --delete-config share.auto.offset.reset,share.delivery.count.limit",
    "kafka-share-groups --delete-offsets --group work --topic orders",
    "kafka-share-groups --delete-offsets --group work --topic nope",
    "kafka-share-groups --delete-offsets --group nope --topic orders",
    "kafka-share-groups --describe --group work",
    "kafka-share-groups --delete --group work",
    "kafka-share-groups --delete --group nope",
)

_TRANSACTIONS = (
    *_steps(
        "kafka-transactions list",
        "kafka-transactions describe --transactional-id nope",
        "kafka-transactions describe-producers --topic orders --partition 0",
        "kafka-transactions find-hanging --broker-id 1",
    ),
    *_steps(
        "kafka-transactions list",
        "kafka-transactions list --duration-filter 3600000",
        "kafka-transactions describe --transactional-id held",
        "kafka-transactions describe-producers --topic with_two.words --partition 0",
        "kafka-transactions find-hanging --broker-id 1 --max-transaction-timeout 15",
        "kafka-transactions abort --topic with_two.words --partition 0 --start-offset 77",
        "kafka-get-offsets --topic with_two.words",
        "kafka-transactions forceTerminateTransaction --transactionalId held",
        "kafka-transactions describe --transactional-id held",
        "kafka-get-offsets --topic with_two.words",
        held="transaction",
    ),
    *_steps(
        "kafka-transactions abort --topic with_two.words --partition 0 --start-offset 2",
        "kafka-get-offsets --topic with_two.words",
        "kafka-transactions describe-producers --topic with_two.words --partition 0",
        held="another",
    ),
)

_LEADERS = _steps(
    "kafka-leader-election --election-type preferred --all-topic-partitions",
    "kafka-leader-election --election-type preferred --topic orders --partition 0",
    "kafka-leader-election --election-type unclean --topic orders --partition 0",
    "kafka-leader-election --election-type preferred --path-to-json-file {folder}/elect.json",
    "kafka-leader-election --election-type preferred --topic nope --partition 0",
    "kafka-reassign-partitions --list",
    "kafka-reassign-partitions --generate --broker-list 1"
    " --topics-to-move-json-file {folder}/topics.json",
    "kafka-reassign-partitions --execute --reassignment-json-file {folder}/same-place.json",
    "kafka-reassign-partitions --verify --reassignment-json-file {folder}/same-place.json",
    "kafka-reassign-partitions --execute --reassignment-json-file {folder}/elsewhere.json",
    "kafka-reassign-partitions --cancel --reassignment-json-file {folder}/same-place.json",
)

_LOAD = _steps(
    "kafka-topics --create --topic load",
    "kafka-producer-perf-test --topic load --num-records 2000 --record-size 100 --throughput -1",
    "kafka-producer-perf-test --topic load --num-records 200 --record-size 100 --throughput -1"
    " --transactional-id perf --transaction-duration-ms 1000",
    "kafka-get-offsets --topic load",
    "kafka-consumer-perf-test --topic load --num-records 2000 --group perf --timeout 20000",
    "kafka-e2e-latency --topic load --num-records 20 --producer-acks all --record-size 100",
    "kafka-topics --create --topic checked",
    "kafka-verifiable-producer --topic checked --max-messages 4 --value-prefix 7"
    " --repeating-keys 2",
    "kafka-verifiable-consumer --topic checked --group-id classic --max-messages 4"
    " --reset-policy earliest --verbose",
    "kafka-verifiable-consumer --topic checked --group-id modern --max-messages 4"
    " --reset-policy earliest --group-protocol consumer",
    "kafka-consumer-groups --describe --group classic",
    "kafka-consumer-groups --describe --group modern --state",
)

SCRIPT: Final[tuple[Step, ...]] = (
    *_CLUSTER,
    *_TOPICS,
    *_RECORDS,
    *_CONFIGS,
    *_BROKER_CONFIGS,
    *_GROUPS,
    *_SHARE_GROUPS,
    *_TRANSACTIONS,
    *_LEADERS,
    *_LOAD,
)
