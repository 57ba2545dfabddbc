"""`--sample-of N`: one test of N runs, chosen by the seed; another commit has another sample.

Guarantees: the same seed chooses the same tests in each process. Each test belongs to one of N
parts, and a seed chooses one part. Tests of files that changed within `RECENT` before the last
commit always run. A sample has at least one test. The seed is PENSTOCK_SAMPLE_SEED, or the last
commit.

CI uses it for slow suites (`.ci/run`). It is NOT used by `make proof` and the weekly workflow,
which run all tests.
"""

import datetime
import functools
import hashlib
import os
import subprocess
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
RECENT: Final = datetime.timedelta(hours=4)


class Sampling:
    """Plugin: deselects the tests outside the sample."""

    def __init__(self, config: pytest.Config) -> None:
        self._parts: int = config.getoption("sample_of")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the sample, and the tests of files that changed lately.

        Last, so that `RecordedRuns` counts all tests of a file.
        """
        if self._parts == 1:
            return
        seed, recent = seed_of_run(), recent_paths()
        left_out = [
            item for item in items if not is_sampled(item.nodeid, seed, self._parts, recent)
        ]
        if len(left_out) == len(items):
            # A run without tests is a failure for pytest.
            left_out = left_out[1:]
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def is_sampled(nodeid: str, seed: str, parts: int, recent: Container[str] = ()) -> bool:
    """Whether this seed chooses the test, or its file changed lately."""
    return path_of(nodeid) in recent or part_of(nodeid, parts) == part_of(seed, parts)


def path_of(nodeid: str) -> str:
    """The file of a test, from the root of the repository."""
    return nodeid.partition("::")[0]


def part_of(text: str, parts: int) -> int:
    """The number of the part that a text belongs to, from 0; all parts have about the same size."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % parts


@functools.cache
def seed_of_run() -> str:
    """PENSTOCK_SAMPLE_SEED, or the last commit; always the same without Git, as in an archive."""
    given = os.environ.get("PENSTOCK_SAMPLE_SEED")
    if given:
        return given
    try:
        return _git("rev-parse", "HEAD").strip()
    except (OSError, subprocess.CalledProcessError):
        return "no commit"


@functools.cache
def recent_paths() -> frozenset[str]:
    """The files that changed within `RECENT` before the last commit, and since."""
    begin = datetime.datetime.fromisoformat(_git("log", "-1", "--format=%cI").strip()) - RECENT
    committed = _git("log", f"--since={begin.isoformat()}", "--name-only", "--format=")
    return frozenset([*committed.splitlines(), *_git("diff", "--name-only", "HEAD").splitlines()])


def _git(*words: str) -> str:
    command: Sequence[str] = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
