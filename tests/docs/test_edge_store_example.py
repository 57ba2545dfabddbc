"""The example of a shop at the edge, run as it is."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "edge_store"


@pytest.mark.slow
def test_five_prices_reach_the_shop() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py")],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = (EXAMPLE / "README.md").read_text().partition("```text\n")[2].partition("```")[0]
    printed, expected = done.stdout.splitlines(), shown.splitlines()
    assert (printed[0], printed[2]) == (expected[0], expected[2])
    # The node reports its health and its lag with a later poll.
    assert printed[1].startswith("└── store-17  POS  ")
