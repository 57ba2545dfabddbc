"""The public CI definition: the same make targets as `.ci/run`, pinned actions, few rights.

`make workflows-check` checks the syntax with actionlint. Nothing here runs a workflow.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKE = re.compile(r"\bmake ((?:[a-z][a-z-]*(?: |$))+)", re.MULTILINE)
PARTS_OF_CHECK = {"lint", "test"}
"""`make check` is these two; the workflow runs them side by side."""


def make_targets(text: str) -> set[str]:
    return {target for words in MAKE.findall(text) for target in words.split()}


def commands(workflow: Path) -> set[str]:
    code = [line.partition("#")[0].rstrip() for line in workflow.read_text().splitlines()]
    return make_targets("\n".join(code))


def defined_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def ci_targets() -> set[str]:
    steps = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if "step " in line]
    return make_targets("\n".join(steps))


def loaded(workflow: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(workflow.read_text())
    return content


def steps_of(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in loaded(workflow)["jobs"].values() for step in job["steps"]]


def test_targets_are_read_from_commands() -> None:
    text = "sudo make crash\nmake models EXAMPLES=5\nmake lint docs"
    assert make_targets(text) == {"crash", "models", "lint", "docs"}


def test_ci_and_workflows_call_targets_that_exist() -> None:
    called = ci_targets().union(*(commands(workflow) for workflow in WORKFLOWS))
    assert called
    assert called - defined_targets() == set()


def test_workflows_run_everything_that_ci_runs() -> None:
    called = set[str]().union(*(commands(workflow) for workflow in WORKFLOWS))
    expected = (ci_targets() - {"install", "release", "check"}) | PARTS_OF_CHECK
    assert expected - called == set()


def test_check_is_its_two_parts() -> None:
    assert f"\ncheck: {' '.join(sorted(PARTS_OF_CHECK))} " in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_may_only_read(workflow: Path) -> None:
    content = loaded(workflow)
    assert content["permissions"] == {"contents": "read"}
    assert not [job for job in content["jobs"].values() if "permissions" in job]
    assert all("timeout-minutes" in job for job in content["jobs"].values())
    used = [step["uses"] for step in steps_of(workflow) if "uses" in step]
    assert [action for action in used if not re.search(r"@v\d+\.\d+\.\d+$", action)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_checkout_leaves_no_credentials(workflow: Path) -> None:
    """Guards that a step cannot push with the token of the checkout."""
    checkouts = [s for s in steps_of(workflow) if s.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
