"""Where the tools print something else on Penstock than on Apache Kafka, and why.

The table is exact: a line that differs and fits no pattern here is a defect, and a pattern that no
line fits any more is to be removed. Patterns are regular expressions for whole lines, after the
rules of tool_texts.py.
"""

import re
from collections.abc import Sequence
from difflib import ndiff
from typing import Final, NamedTuple

NOT_SERVED: Final = (
    "(?:Create|Renew|Expire|Describe)DelegationToken",
    "AlterReplicaLogDirs",
    "AddRaftVoter|RemoveRaftVoter",
    "StreamsGroupHeartbeat",
)
"""APIs that Kafka's broker offers to clients and Penstock does not, yet or ever."""

_REFUSED = r"err: (?:java\.util\.concurrent\.ExecutionException|Caused by): org\.apache\.kafka\."


class Difference(NamedTuple):
    """Output of one command on one broker only."""

    command: str
    reason: str
    only_kafka: tuple[str, ...]
    only_penstock: tuple[str, ...] = ()


class Verdict(NamedTuple):
    """The problems of two outputs, or of the table; none, when both are empty."""

    unknown: list[str]
    """Lines of one broker only that the table does not have, marked `-` for Kafka's."""
    vanished: list[str]
    """Patterns of the table that no line fits."""


def judge(kafka: Sequence[str], penstock: Sequence[str], known: Difference | None) -> Verdict:
    """Hold two outputs against each other and against what is known to differ."""
    verdict = Verdict([], [])
    lines = list(ndiff(kafka, penstock))
    only_kafka, only_penstock = known[2:] if known else ((), ())
    for mark, patterns in (("- ", only_kafka), ("+ ", only_penstock)):
        found = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
        verdict.unknown.extend(
            mark + one for one in found if not any(re.fullmatch(p, one) for p in patterns)
        )
        verdict.vanished.extend(
            mark + p for p in patterns if not any(re.fullmatch(p, one) for one in found)
        )
    return verdict


DIFFERENCES: Final = (
    Difference(
        "kafka-broker-api-versions",
        "APIs that are not served are not offered",
        tuple(rf"(?:{names})\(\d+\): \d.* \[usable: \d+\],?" for names in NOT_SERVED),
        tuple(rf"(?:{names})\(\d+\): UNSUPPORTED,?" for names in NOT_SERVED),
    ),
    Difference(
        "kafka-features describe",
        "features of Kafka's own quorum, of replicas, and of groups that are not served",
        (r"Feature: (?:eligible\.leader\.replicas|kraft|metadata|streams)\.version .*",),
    ),
    Difference(
        "kafka-metadata-quorum describe --status",
        "there is no listener for controllers: a broker has the metadata itself",
        (r'CurrentVoters: \[\{"id": 1, "endpoints": \["CONTROLLER://ADDRESS"\]\}\]',),
        (r'CurrentVoters: \[\{"id": 1, "endpoints": \["PLAINTEXT://ADDRESS"\]\}\]',),
    ),
    Difference(
        "kafka-topics --create --topic wrong --replication-factor 3",
        "directories cannot be cordoned",
        (r".* 1 broker\(s\) are registered or some brokers have .* directories cordoned\.",),
        (r".* 1 broker\(s\) are registered\.",),
    ),
    Difference(
        "kafka-configs --describe --entity-type broker-loggers --entity-name 1",
        "its loggers have one level, a setting (node.log_level)",
        (r"[\w.$]+=[A-Z]+ sensitive=false synonyms=\{\}",),
    ),
    Difference(
        "kafka-configs --alter --entity-type groups --entity-name readers"
        " --add-config consumer.session.timeout.ms=1",
        "the bound is told with its name",
        (_REFUSED + r".* group\.consumer\.min\.session\.timeout\.ms",),
        (_REFUSED + r".* group\.consumer\.min\.session\.timeout\.ms \(45000\)",),
    ),
)
