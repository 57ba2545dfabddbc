"""After `load`, no request of any API imports a module of its handler."""

import subprocess
import sys

SCRIPT = """
import sys
from penstock.node import warming
from penstock.broker.handlers import HANDLERS
rows = [row for row in HANDLERS.values() if row.module_name]
names = {f"penstock.broker.handlers.{row.module_name}" for row in rows}
assert not names & set(sys.modules), "nothing is left to load"
warming.REST_SECONDS = 0
warming.load()
before = set(sys.modules)
for row in rows:
    row.load()
print(len(names - before), len(set(sys.modules) - before), warming.COORDINATORS in before)
"""


def test_everything_is_loaded() -> None:
    """In a process of its own: this one has imported all of it already."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.split() == ["0", "0", "True"]
