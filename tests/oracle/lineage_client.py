"""OpenLineage's own client for Python, in an environment of its own in the user's cache folder."""

import subprocess
import sys
from pathlib import Path

from tests.oracle.cache import OracleError, built, run

VERSION = "1.54.0"
SECONDS_MAX = 120
JUDGE = Path(__file__).with_name("lineage_judge.py")


def client_python() -> Path:
    """An interpreter that has the client."""

    def build(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder / "venv")])
        python = str(folder / "venv" / "bin" / "python")
        run([python, "-m", "pip", "install", "--quiet", f"openlineage-python=={VERSION}"])

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return built(f"openlineage-{VERSION}-{version}", build) / "venv" / "bin" / "python"


def judged(events: Path) -> int:
    """The number of events in the file; raise if the client's classes refuse one."""
    done = subprocess.run(
        [str(client_python()), "-I", str(JUDGE), str(events)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise OracleError(f"OpenLineage's client refuses an event:\n{done.stderr[-4_000:]}")
    return int(done.stdout)
