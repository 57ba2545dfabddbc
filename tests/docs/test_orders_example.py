"""The example project's own tests, run as its README says, on the plugin of this tree.

And they can fail: without the basis of a promise, the test of that promise does.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "orders_service"
SECONDS_MAX = 300


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "orders_service"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return folder


SUMMARY = re.compile(r"^=+ (\d+ (?:passed|failed).*) in [\d.]+s.* =+$", re.MULTILINE)


def run_tests(project: Path, *options: str) -> str:
    """Run the example's tests; return pytest's line of counts with everything before it.

    A failed test may leave connections open, and Python then reports them behind that line.
    """
    installed = {one.value for one in entry_points(group="pytest11")}
    by_name = () if "penstock.testing.plugin" in installed else ("-p", "penstock.testing.plugin")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:randomly", *by_name, *options],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(project / "src")]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    summaries = list(SUMMARY.finditer(done.stdout))
    assert summaries, done.stdout
    return done.stdout[: summaries[-1].end()]


def test_its_tests_pass(project: Path) -> None:
    output = run_tests(project)
    assert "6 passed" in output.splitlines()[-1], output


def test_a_ledger_that_forgets_is_found_out(project: Path) -> None:
    path = project / "src" / "orders_service" / "ledger.py"
    text = path.read_text()
    assert "INSERT OR IGNORE" in text
    changed = text.replace("order_id TEXT PRIMARY KEY);", "order_id TEXT);", 1)
    changed = changed.replace("owed (order_id TEXT PRIMARY KEY", "owed (order_id TEXT")
    path.write_text(changed)
    output = run_tests(project, "-k", "delivered_twice")
    assert "1 failed" in output.splitlines()[-1], output


def test_a_service_that_does_not_note_what_it_sent_is_found_out(project: Path) -> None:
    path = project / "src" / "orders_service" / "service.py"
    text = path.read_text()
    line = "        ledger.confirmed([order_id for order_id, _ in owed])\n"
    assert line in text
    path.write_text(text.replace(line, ""))
    output = run_tests(project, "-k", "crash")
    assert "1 failed" in output.splitlines()[-1], output
