"""The imports of a broker before it answers: most of a cold start is imports.

A module that is added here costs every start. If a start needs it, add it to the lists and name its
cost in the commit; if only some requests or commands need it, import it where they begin.
"""

import subprocess
import sys
from pathlib import Path

import pytest

THIRD_PARTIES = {
    "annotated_types",
    "click",
    "cramjam",
    "crc32c",
    "kio",
    "pydantic",
    "pydantic_core",
    "typing_extensions",
    "typing_inspection",
    "uvloop",
}
"""Packages from outside that a start needs."""

ABSENT = (
    "difflib",
    "http",
    "kio.schema",
    "multiprocessing",
    "penstock.admin",
    "penstock.bench",
    "penstock.coordinator.groups",
    "penstock.coordinator.transactions",
    "penstock.core.settings.toml_lines",
    "penstock.spark",
    "penstock.testing",
    "statistics",
    "tomllib",
    "unittest",
    "xml",
)
"""Modules that a start must not import: each was imported once, or costs more than others."""

SCRIPT = """
import os, sys
import click

def report(*_arguments, **_options):
    print("MODULES", *sorted(sys.modules), flush=True)
    os._exit(0)

click.echo = report
from penstock.cli.main import run
run(["serve", "--port", "0", "--no-admin", "--data-dir", sys.argv[1]])
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Everything that is imported when a broker on an empty data directory is ready."""
    folder: Path = tmp_path_factory.mktemp("start")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "data")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = set(done.stdout.partition("MODULES ")[2].split())
    assert "penstock.node.server" in found
    return found


def test_a_start_does_not_import_what_only_some_need(modules: set[str]) -> None:
    assert [name for name in ABSENT if name in modules] == []


def test_a_start_imports_no_other_package_from_outside(modules: set[str]) -> None:
    roots = {name.partition(".")[0] for name in modules}
    known = {*sys.stdlib_module_names, "penstock", "__main__", "cython_runtime"}
    outside = {name for name in roots - known if not name.startswith(("_", "penstock__"))}
    # The environment of the tests has startup files of its own.
    outside -= {"distutils-precedence", "sitecustomize", "usercustomize"}
    assert outside == THIRD_PARTIES
