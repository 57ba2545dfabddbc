"""The example of a shop at the edge, run as it is."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "edge_store"
REFRESH = "refresh: "
"""The line of the step that needs Spark."""


def shown() -> list[str]:
    """Return the output that the page of the example shows."""
    page = (EXAMPLE / "README.md").read_text()
    return page.partition("```text\n")[2].partition("```")[0].splitlines()


def printed(*words: str, seconds_max: float) -> list[str]:
    """Return the output of the example."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py"), *words],
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_prices_reach_the_shop_and_survive_an_outage() -> None:
    expected = [line for line in shown() if not line.startswith(REFRESH)]
    assert printed(seconds_max=110) == expected


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_snapshot_replaces_the_log_of_the_shop() -> None:
    assert printed("--refresh", seconds_max=390) == shown()
