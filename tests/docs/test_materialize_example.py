"""The example of `penstock materialize` runs as it stands, and its checks hold."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def test_prices() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "materialize" / "prices.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "tea: {'sku': 'tea', 'price': 4.2}",
        "below 2: ['milk', 'salt']",
        "count and sum: [5, 15.1]",
        "tea after the restart: {'sku': 'tea', 'price': 4.8}",
        "done",
    ]
