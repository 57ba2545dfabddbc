"""Tests that passed against Apache Kafka are not run against it again until something changes.

A test of the interop suite runs against Penstock and against Apache Kafka. The run against Kafka
checks the test: it passes again as long as the test, the code it uses and Kafka stay the same. So
`kafka_runs.txt` has a line for each file of tests with two hashes over that content and the number
of tests that passed. A file with the same hashes and number is left out.

The first hash covers the versions of Kafka and of the clients, and the file with every module of
the tests that it imports, directly or not. The second one also covers the modules of Penstock among
them, except the server, which has no part in a run against Kafka. If only the second one differs,
one file of `SAMPLED_OF` is run, chosen by the seed: PENSTOCK_SAMPLE_SEED, or the last commit.

`--live-kafka` runs all of them (`make proof`, the weekly workflow), and `--record-kafka` does so
and writes the file. Files that start other programs of this repository (`NEVER_RECORDED`) are
always run.
"""

import ast
import functools
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.oracle.cache import content_key
from tests.oracle.kafka_jars import KAFKA_VERSION
from tests.sampling import is_sampled, path_of, seed_of_run

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "src"
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
SAMPLED_OF: Final = 4
"""If only modules of Penstock changed, one of this number of files runs on Kafka."""
SELECTION: Final = frozenset(
    ROOT / f"tests/{name}.py" for name in ("marked_files", "oracle/recorded_runs", "sampling")
)
"""Modules of `conftest.py` that choose tests: no outcome depends on them."""
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
HEADING: Final = (
    "# Written by `make interop-record`: file, hashes of its content, tests that passed."
)


class Recorded(NamedTuple):
    """A file of tests that passed: the hashes of its content, and how many tests it has."""

    tests_hash: str
    """Over the tests and their modules."""
    all_hash: str
    """Over the modules of Penstock that they use too."""
    tests_count: int


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
                if path not in self._failed and is_recordable(path):
                    record[path] = content_of(path, self._passed[path])
            write_record(record)


def recorded_paths(counts: Mapping[str, int], seed: str = "") -> set[str]:
    """The files that need no run against Kafka; `counts` has the number of tests of each."""
    record = read_record()
    chosen_by = seed or seed_of_run()
    return {
        path
        for path, count in counts.items()
        if path in record
        and is_recordable(path)
        and needs_no_run(record[path], content_of(path, count), path, chosen_by)
    }


def needs_no_run(recorded: Recorded, now: Recorded, path: str, seed: str) -> bool:
    """Whether the tests of a file are the same and, if Penstock changed, not in the sample."""
    if recorded == now:
        return True
    is_same_test = recorded._replace(all_hash="") == now._replace(all_hash="")
    return is_same_test and not is_sampled(path, seed, SAMPLED_OF)


def read_record() -> dict[str, Recorded]:
    """Return what is recorded of each file."""
    if not RECORD.exists():
        return {}
    rows = (line.split() for line in RECORD.read_text().splitlines() if line[:1] not in ("", "#"))
    return {path: Recorded(first, second, int(count)) for path, first, second, count in rows}


def write_record(record: Mapping[str, Recorded]) -> None:
    """Write the hashes and the number of tests of each file."""
    lines = [" ".join([path, *map(str, record[path])]) for path in sorted(record)]
    RECORD.write_text("\n".join([HEADING, *lines, ""]))


def is_recordable(path: str) -> bool:
    """Whether the hashes cover everything that decides how the tests of a file fare on Kafka."""
    return path.startswith(RECORDED_FOLDERS) and path not in NEVER_RECORDED


def content_of(path: str, count: int) -> Recorded:
    """The hashes of a file with this number of tests, as they are now."""
    return Recorded(*_hashes(path), count)


@functools.cache
def _hashes(path: str) -> tuple[str, str]:
    versions = (KAFKA_VERSION, *(f"{name} {version(name)}" for name in CLIENTS))
    everything = sorted(_closure(ROOT / path))
    tests = [file for file in everything if not file.is_relative_to(PACKAGE)]
    return content_key(*versions, *tests), content_key(*versions, *everything)


def _closure(start: Path) -> set[Path]:
    """The file, its conftest files, and every file of this repository that they import."""
    found: set[Path] = set()
    left = [start, *(folder / "conftest.py" for folder in start.parents)]
    if start.parent == DRIVEN:
        # Its tests start programs in four languages.
        left += (DRIVEN / "drivers").rglob("*")
        left += DRIVEN.glob("*.java")
    while left:
        path = left.pop()
        if path in found or path in SELECTION or not path.is_relative_to(ROOT):
            continue
        if not path.is_file():
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
