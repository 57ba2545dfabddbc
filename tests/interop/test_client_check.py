"""ClientCheck, the checks of the Java client that the project is measured by, on both brokers.

All of its checks are run, one after another, and the list of failures is exact: a check that fails
and is not listed is a defect, and one that is listed and passes must be removed from the list. The
checks of ACLs fail on both, because these tests start brokers without an authorizer; with one they
pass them all (compat/client_check).
"""

import re
import subprocess

import pytest

from compat.client_check.run import compiled
from tests.interop.conftest import BrokerNamed
from tests.oracle.kafka_jars import java_command

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

RUN_SECONDS_MAX = 240.0
CHECKS = 80

EXPECTED_FAILURES = frozenset({"createAcls", "deleteAcls", "describeAcls"})
"""Both brokers run without an authorizer here."""

_RESULT = re.compile(r"^(PASS|FAIL) (.*?) +\d+ ms ?(.*)$", re.MULTILINE)


@pytest.mark.parametrize("broker", ["kafka", "penstock"])
def test_every_check_passes_but_those_of_what_is_not_there(
    broker: str, broker_named: BrokerNamed
) -> None:
    command = java_command(
        "ClientCheck",
        [broker_named(broker).bootstrap],
        appended_to_class_path=compiled(),
        log_level="error",
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
    )
    results = _RESULT.findall(done.stdout)
    failed = {name: told for word, name, told in results if word == "FAIL"}
    unexpected = {name: told for name, told in failed.items() if name not in EXPECTED_FAILURES}
    assert unexpected == {}
    assert failed.keys() == EXPECTED_FAILURES
    assert len(results) == CHECKS
