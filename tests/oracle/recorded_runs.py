"""Tests that passed against Apache Kafka are not run against it again until something changes.

A test of the interop suite runs against Penstock and against Apache Kafka. The run against Kafka
checks the test: it passes again as long as the test, the code it uses and Kafka stay the same. So
`kafka_runs.txt` has a line for each file of tests with a hash over that content and the number of
tests that passed; a file with the same hash and number is left out. `--live-kafka` runs all of
them (`make proof`, the weekly workflow), and `--record-kafka` does so and writes the file.

The hash covers the versions of Kafka and of the clients, and the file with every module of this
repository that it imports, directly or not, except Penstock's server, which has no part in a run
against Kafka. Files that start other programs of this repository (`NEVER_RECORDED`) are always run.
"""

import ast
import functools
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from tests.oracle.cache import content_key
from tests.oracle.kafka_jars import KAFKA_VERSION

ROOT: Final = Path(__file__).resolve().parents[2]
RECORD: Final = Path(__file__).with_name("kafka_runs.txt")
RECORDED_FOLDERS: Final = ("tests/broker/", "tests/bad_input/", "tests/interop/")
SERVER: Final = tuple(
    f"penstock.{name}."
    for name in (
        *("admin", "broker", "cli", "cluster", "coordinator", "node", "replication"),
        *("storage", "testing"),
    )
)
DRIVEN: Final = ROOT / "tests/interop"
CLIENTS: Final = ("confluent-kafka", "kafka-python", "aiokafka")
NEVER_RECORDED: Final = tuple(
    f"tests/interop/test_{name}.py"
    # They start Penstock beside Kafka, or programs that the hash does not cover.
    for name in (
        *("admin_port", "client_check", "log_format", "secured_commands", "settings_file"),
        "transaction_index",
    )
)


ON_KAFKA: Final = ("runs on", "kafka")
"""Property of a report, which crosses from the processes that run tests."""
HEADING: Final = "# Written by `make interop-record`: file, hash of its content, tests that passed."


def is_on_kafka(item: pytest.Item) -> bool:
    """Whether this test has only Apache Kafka as its broker."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and "kafka" in callspec.params.values()


class RecordedRuns:
    """Plugin: leaves recorded tests out, or records the tests of this run."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_recording = bool(config.getoption("record_kafka"))
        is_partial = config.getoption("keyword") or any("::" in one for one in config.args)
        self._leaves_out = not (self._is_recording or config.getoption("live_kafka") or is_partial)
        self._is_worker = hasattr(config, "workerinput")
        self._passed: Counter[str] = Counter()
        self._failed: set[str] = set()

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out the files whose tests passed against Kafka with the same content."""
        on_kafka = [item for item in items if is_on_kafka(item)]
        for item in on_kafka:
            item.user_properties.append(ON_KAFKA)
        if self._leaves_out:
            recorded = recorded_paths(Counter(path_of(item.nodeid) for item in on_kafka))
            left_out = [item for item in on_kafka if path_of(item.nodeid) in recorded]
            config.hook.pytest_deselected(items=left_out)
            gone = set(left_out)
            items[:] = [item for item in items if item not in gone]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the tests that passed; a skipped one has not."""
        if ON_KAFKA not in report.user_properties:
            return
        if not report.passed:
            self._failed.add(path_of(report.nodeid))
        elif report.when == "call":
            self._passed[path_of(report.nodeid)] += 1

    def pytest_sessionfinish(self) -> None:
        """Write the record of the files whose tests all passed."""
        if self._is_recording and not self._is_worker:
            record = read_record()
            for path in self._passed.keys() | self._failed:
                record.pop(path, None)
                if path not in self._failed and key(path):
                    record[path] = (key(path), self._passed[path])
            write_record(record)


def recorded_paths(counts: Mapping[str, int]) -> set[str]:
    """The files that need no run against Kafka; `counts` has the number of tests of each."""
    record = read_record()
    return {
        path
        for path, count in counts.items()
        if record.get(path, ("", 0))[1] == count and record[path][0] == key(path)
    }


def read_record() -> dict[str, tuple[str, int]]:
    """Return the hash and the number of tests of each recorded file."""
    if not RECORD.exists():
        return {}
    rows = (line.split() for line in RECORD.read_text().splitlines() if line[:1] not in ("", "#"))
    return {path: (hash_text, int(count)) for path, hash_text, count in rows}


def path_of(nodeid: str) -> str:
    """The file of a test, from the root of the repository."""
    return nodeid.partition("::")[0]


def write_record(record: Mapping[str, tuple[str, int]]) -> None:
    """Write the hash and the number of tests of each file."""
    lines = [f"{path} {record[path][0]} {record[path][1]}" for path in sorted(record)]
    RECORD.write_text("\n".join([HEADING, *lines, ""]))


@functools.cache
def key(path: str) -> str:
    """The hash over everything that decides how the tests of a file fare against Kafka."""
    if not path.startswith(RECORDED_FOLDERS) or path in NEVER_RECORDED:
        return ""
    versions = (f"{name} {version(name)}" for name in CLIENTS)
    return content_key(KAFKA_VERSION, *versions, *sorted(_closure(ROOT / path)))


def _closure(start: Path) -> set[Path]:
    """The file, its conftest files, and every file of this repository that they import."""
    found: set[Path] = set()
    left = [start, *(folder / "conftest.py" for folder in start.parents)]
    if start.parent == DRIVEN:
        # Its tests start programs in four languages.
        left += (path for path in DRIVEN.rglob("*") if not path.name.startswith("test_"))
    while left:
        path = left.pop()
        if path in found or not path.is_relative_to(ROOT) or not path.is_file():
            continue
        found.add(path)
        left += (_file(name) for name in _imports(path) if not f"{name}.".startswith(SERVER))
    return found


@functools.cache
def _imports(path: Path) -> frozenset[str]:
    """The modules of this repository that a file may import: names of functions are among them."""
    names: set[str] = set()
    if path.suffix != ".py":
        return frozenset()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(name for name in names if name.startswith(("tests.", "penstock.", "compat.")))


def _file(module: str) -> Path:
    """The file of a module; it need not exist."""
    base = ROOT / ("src" if module.startswith("penstock.") else "")
    folder = base.joinpath(*module.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
