"""`penstock serve` does not load plugins that other packages register with pydantic.

Looking for them reads the metadata of every installed package, while a start waits.
"""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import click
from penstock.cli.main import LazyGroup
command = LazyGroup().get_command(click.Context(click.Command("penstock")), "{command}")
from penstock.core.settings.tree import Settings
print("loaded", command.name)
"""


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Load a command's module in a process that finds a plugin which cannot be loaded."""
    metadata = folder / "intruder-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: intruder\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pydantic]\nintruder = intruder:plugin\n")
    (folder / "intruder.py").write_text('import sys\nsys.exit("a plugin was loaded")\n')
    path = os.pathsep.join([str(folder), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("PYDANTIC_DISABLE_PLUGINS", None)
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(command=command)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_broker_loads_no_plugins_of_other_packages(tmp_path: Path) -> None:
    done = run("serve", tmp_path)
    assert done.stdout == "loaded serve\n", done.stderr


def test_other_commands_leave_plugins_alone(tmp_path: Path) -> None:
    """Pipelines run code of their users, which may rely on them."""
    assert "a plugin was loaded" in run("table", tmp_path).stderr
