"""The example of a consumer: its tests pass, and they can fail. The guide's programs run too."""

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
EXAMPLE = ROOT / "examples" / "consumer_app"
GUIDE = ROOT / "docs" / "guides" / "consumers.md"
SECONDS_MAX = 120


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "consumer_app"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return folder


def run_tests(project: Path, *options: str) -> str:
    installed = {one.value for one in entry_points(group="pytest11")}
    by_name = () if "penstock.testing.plugin" in installed else ("-p", "penstock.testing.plugin")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *by_name, *options],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(project)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    return done.stdout


def test_its_tests_pass(project: Path) -> None:
    output = run_tests(project)
    assert "4 passed" in output, output


def test_a_service_that_bills_twice_is_found_out(project: Path) -> None:
    path = project / "billing.py"
    text = path.read_text()
    changed = text.replace("id TEXT PRIMARY KEY", "id TEXT")
    assert changed != text
    path.write_text(changed)
    output = run_tests(project, "-k", "twice")
    assert "1 failed" in output, output


def test_a_service_without_its_error_handler_is_found_out(project: Path) -> None:
    path = project / "billing.py"
    text = path.read_text()
    changed = text.replace("    on_error=choose,\n", "")
    assert changed != text
    path.write_text(changed)
    output = run_tests(project, "-k", "at_once")
    assert "1 failed" in output, output


def test_the_programs_of_the_guide(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    tests = [one for one in programs if "def test_" in one]
    code = [one for one in programs if "def test_" not in one]
    assert tests
    assert code
    for number, one in enumerate(code):
        (tmp_path / f"part_{number}.py").write_text(one)
        (tmp_path / f"test_part_{number}.py").write_text(
            f"import part_{number}\n\n\ndef test_it_can_be_imported():\n    assert part_{number}\n"
        )
    (tmp_path / "billing.py").write_text(code[0])
    for number, one in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(one)
    output = run_tests(tmp_path)
    count = len(code) + sum(one.count("def test_") for one in tests)
    assert f"{count} passed" in output, output
