"""ClientCheck on a broker: all its checks, one after another, by the Java client.

python -m compat.client_check.run [--broker kafka] [--update]
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from compat.suite import Result, Results, Suite, main
from tests.oracle.cache import built, content_key, progress, run, tool
from tests.oracle.kafka_jars import class_path, java_command, java_version

RUN_SECONDS_MAX = 900

_RESULT = re.compile(r"^(PASS|FAIL) (.*?) +\d+ ms ?(.*)$", re.MULTILINE)


def compiled() -> Path:
    """The folder with the compiled classes."""
    sources = sorted((Path(__file__).resolve().parent / "java").glob("*.java"))

    def build(folder: Path) -> None:
        progress("compiling ClientCheck")
        javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
        run([javac, "-nowarn", "-d", folder, "-cp", class_path(), *sources])

    key = content_key(*sources, java_version(), class_path())
    return built(f"compat/client-check-{key}", build)


def run_checks(bootstrap: str, wanted: Sequence[str]) -> Results:
    """Every check, or of the results only the wanted: one run is one program."""
    command = java_command(
        "ClientCheck", [bootstrap], appended_to_class_path=compiled(), log_level="error"
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
    )
    results = {}
    for word, name, told in _RESULT.findall(done.stdout):
        results[name] = Result.PASSED if word == "PASS" else Result.FAILED
        if word == "FAIL":
            print(f"  {name}: {told}", flush=True)
    return {name: result for name, result in results.items() if not wanted or name in wanted}


SUITE = Suite(
    "ClientCheck",
    Path(__file__).resolve().parent,
    run_checks,
    properties={
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    },
)

if __name__ == "__main__":
    sys.exit(main(SUITE))
