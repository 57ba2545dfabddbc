"""A broker without share groups has no code and no objects of theirs."""

import subprocess
import sys

SCRIPT = """
import sys
from penstock.testing import Broker
with Broker():
    print(*(name for name in sys.modules if "share_delivery" in name or "live_partition" in name))
"""


def test_a_start_imports_no_code_of_share_groups() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ""
