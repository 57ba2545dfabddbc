"""ClientCheck, the checks of the Java client that the project is measured by, on both brokers.

Only the checks named here are run: those that need neither groups nor transactions nor an API that
Penstock has not got yet. The list only grows. ClientCheck tries all its checks one after another,
and one that has no answer costs it fifteen seconds or more, so a copy without the others is made
in the cache folder: each check is one statement `t("name", …)` on a line of its own, and a line
whose name is not wanted is left out. One statement is changed: the last check also deletes a topic
that a left-out one (of transactions) makes.
"""

import re
from pathlib import Path

import pytest

from tests.interop.conftest import BrokerNamed
from tests.oracle.cache import OracleError, built, content_key, progress, run, tool
from tests.oracle.kafka_jars import class_path, java_command, java_version

pytestmark = pytest.mark.interop

SOURCE = Path(__file__).resolve().parents[3] / "shared" / "oracle" / "ClientCheck.java"

WANTED = frozenset(
    {
        "addRaftVoter bad",
        "alterClientQuotas",
        "alterReplicaLogDirs bad",
        "createDelegationToken (plaintext)",
        "createTopics",
        "createTopics dup",
        "deleteTopics",
        "deleteTopics by name",
        "describeClientQuotas",
        "describeCluster",
        "describeConfigs broker",
        "describeConfigs topic",
        "describeDelegationToken (plaintext)",
        "describeFeatures",
        "describeTopics",
        "describeTopics by id",
        "listOffsets earliest/latest/max/ts",
        "listTopics",
        "metrics",
        "offsetsForTimes/beginning/end",
        "producer acks=0/1",
        "producer idempotent ",
        "unregisterBroker bad",
    }
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EXPECTED = (WANTED - {"producer idempotent "}) | {f"producer idempotent {c}" for c in CODECS}

_CHECK = re.compile(r'^\s*(?:for \([^)]*\)\)? )?t\("([^"]*)"')
_TOPIC_OF_A_CHECK_LEFT_OUT = ',"jt-"+R'
_RESULT = re.compile(r"^(PASS|FAIL) (.*?) +\d+ ms ?(.*)$", re.MULTILINE)


def filtered(source: str) -> str:
    """ClientCheck without the checks that are not wanted."""
    kept = []
    seen = set()
    for line in source.splitlines():
        check = _CHECK.match(line)
        if check is None or check[1] in WANTED:
            kept.append(line)
        if check is not None:
            seen.add(check[1])
    missing = WANTED - seen
    if missing:
        raise OracleError(f"ClientCheck has no such checks: {sorted(missing)}")
    return "\n".join(kept).replace(_TOPIC_OF_A_CHECK_LEFT_OUT, "")


def compiled() -> Path:
    """The folder with the compiled copy."""
    if not SOURCE.exists():
        raise OracleError(
            "ClientCheck.java is not there: the folder 'shared' lies beside the checkout, "
            f"and this test compiles {SOURCE.relative_to(SOURCE.parents[2])} from it"
        )
    text = filtered(SOURCE.read_text())
    javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")

    def build(folder: Path) -> None:
        progress("compiling ClientCheck")
        file = folder / "ClientCheck.java"
        file.write_text(text)
        run([javac, "-nowarn", "-d", folder, "-cp", class_path(), file])

    return built(f"interop/client-check-{content_key(text, java_version(), class_path())}", build)


@pytest.mark.parametrize("broker", ["kafka", "penstock"])
def test_every_wanted_check_passes(broker: str, broker_named: BrokerNamed) -> None:
    bootstrap = broker_named(broker).bootstrap
    command = java_command(
        "ClientCheck", [bootstrap], appended_to_class_path=compiled(), log_level="error"
    )
    printed = run(["sh", "-c", '"$@" || true', "sh", *command], timeout_seconds=180)
    results = {name: (word, told) for word, name, told in _RESULT.findall(printed)}
    failed = {name: told for name, (word, told) in results.items() if word == "FAIL"}
    assert failed == {}
    assert set(results) == EXPECTED
