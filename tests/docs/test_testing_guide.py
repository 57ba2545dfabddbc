"""The guide on testing and the README's section: pytest runs each program as printed."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guides" / "testing.md").read_text()
PLUGIN = ("-p", "penstock.testing.plugin")
"""In a process of its own: pytest forgets modules that a run in this process imports first, and
classes of messages would then exist twice."""
README = (ROOT / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def passed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many tests pass; all of them, or what went wrong is shown."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.syspath_prepend(str(pytester.path))
    done = pytester.runpytest_subprocess("-p", "anyio.pytest_plugin", *PLUGIN)
    counts = done.parseoutcomes()
    assert set(counts) == {"passed"}, str(done.stdout)
    return counts["passed"]


def test_every_program_of_the_guide(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = blocks(GUIDE, "python")
    (code,) = [one for one in programs if one.startswith("# orders.py")]
    tests = [one for one in programs if one is not code]
    (settings,) = blocks(GUIDE, "toml")
    pytester.makepyprojecttoml(settings)
    pytester.makepyfile(orders=code)
    pytester.makepyfile(**{f"test_{number}": one for number, one in enumerate(tests)})
    assert passed(pytester, monkeypatch) == GUIDE.count("def test_")


def test_the_page_for_users_of_testcontainers(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "guides" / "testcontainers.md").read_text()
    fixture, test = blocks(page, "python")
    pytester.makeconftest(fixture)
    pytester.makepyfile(test)
    assert passed(pytester, monkeypatch) == 1


def test_the_times_beside_a_container_are_the_measured_ones() -> None:
    page = (ROOT / "docs" / "guides" / "testcontainers.md").read_text()
    measured = (ROOT / "benchmarks" / "README.md").read_text()
    rows = {
        "start": "start",
        "stop": "stop",
        "return after a crash, data kept": "return after a crash",
        "first start of a test process, imports included": (
            "first start of a process, imports included"
        ),
    }
    for shown, name in rows.items():
        (row,) = re.findall(rf"^\| {name} \| ([\d.,]+) \S+ \| ([\d.,]+) ", measured, re.MULTILINE)
        assert f"| {shown} | {row[0]} | {row[1]} |" in page


def test_the_message_that_the_guide_shows(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = blocks(GUIDE, "text")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        """
        def test_it(penstock_broker, penstock_records):
            penstock_broker.produce("orders", "placed", key="42")
            penstock_records("orders", count=2, timeout_seconds=0.01)
        """
    )
    output = str(pytester.runpytest_subprocess(*PLUGIN).stdout)
    for line in shown.replace("within 10 s", "within 0.01 s").splitlines():
        assert line.strip() in output


def test_the_readme(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    (test,) = [one for one in blocks(README, "python") if "penstock_broker" in one]
    pytester.makepyfile(test)
    assert passed(pytester, monkeypatch) == 1
