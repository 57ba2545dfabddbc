"""franz-go's own tests (`pkg/kgo`) on a broker.

    python -m compat.franz_go.run [--broker kafka | --brokers 3] [--update] [TEST …]

The module is downloaded and its test program compiled once, into the user's cache folder.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from compat.suite import Result, Results, Suite, main, replication_factor
from tests.oracle.cache import built, progress, run, tool

VERSION = "v1.22.2"
RUN_SECONDS_MAX = 600
SETTINGS = {
    "KGO_TEST_RECORDS": "5000",
    "KGO_TEST_MAX_TOPIC_PARTS": "7",
    "KGO_TEST_STABLE_FETCH": "true",
    "KGO_LOG_LEVEL": "none",
}

_RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(", re.MULTILINE)
_KINDS = {"PASS": Result.PASSED, "FAIL": Result.FAILED, "SKIP": Result.SKIPPED}


def source() -> Path:
    """The folder with the module's source and the compiled `kgo.test`."""

    def build(folder: Path) -> None:
        go = tool("go", "install Go 1.24 or later (Debian: golang-go)")
        progress(f"compiling the tests of franz-go {VERSION} (about a minute)")
        told = run([go, "mod", "download", "-json", f"github.com/twmb/franz-go@{VERSION}"])
        place = folder / "source"
        shutil.copytree(json.loads(told)["Dir"], place)
        for path in [place, *place.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
        run([go, "test", "-c", "-o", place / "kgo.test", "./pkg/kgo"], folder=place)

    return built(f"compat/franz-go-{VERSION}", build) / "source"


def run_tests(bootstrap: str, wanted: Sequence[str]) -> Results:
    """Run the tests; a test that still runs at the time limit has failed."""
    place = source()
    command = [str(place / "kgo.test"), "-test.v", f"-test.timeout={RUN_SECONDS_MAX - 10}s"]
    if wanted:
        command.append(f"-test.run=^({'|'.join(wanted)})$")
    done = subprocess.run(
        command,
        cwd=place / "pkg" / "kgo",
        env={
            **os.environ,
            **SETTINGS,
            "KGO_SEEDS": bootstrap,
            "KGO_TEST_RF": str(replication_factor(bootstrap)),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    results = {name: _KINDS[word] for word, name in _RESULT.findall(done.stdout)}
    started = re.findall(r"^=== RUN +(\S+)$", done.stdout, re.MULTILINE)
    for name in started:
        results.setdefault(name, Result.FAILED)
    if done.returncode != 0:
        print(done.stdout[-6000:])
    return results


SUITE = Suite("franz-go", Path(__file__).resolve().parent, run_tests)

if __name__ == "__main__":
    sys.exit(main(SUITE))
