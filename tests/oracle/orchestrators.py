"""Apache Airflow and Dagster, each in an environment of its own in the user's cache folder.

Guarantees: a run has its own home folder with its own SQLite database, reaches no service, and ends
with the process. Neither has PySpark or Penstock: the examples start the command `penstock`.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.oracle.cache import OracleError, built, progress, run

AIRFLOW: Final = "apache-airflow==3.3.2"
DAGSTER: Final = "dagster==1.13.28"
SECONDS_MAX: Final = 400
_RUN_DAG: Final = """
import runpy, sys
from airflow.sdk import DAG
names = runpy.run_path(sys.argv[1])
found = [one for one in names.values() if isinstance(one, DAG)] or [names[sys.argv[2]]()]
for one in found[0].test().get_task_instances():
    print("task", one.task_id, one.state, one.try_number)
"""


def _python(requirement: str) -> Path:
    def build(folder: Path) -> None:
        progress(f"installing {requirement}")
        run([sys.executable, "-m", "venv", folder / "venv"])
        python = folder / "venv" / "bin" / "python"
        run([python, "-m", "pip", "install", "--quiet", requirement])

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return built(f"{requirement.replace('==', '-')}-{version}", build) / "venv" / "bin" / "python"


def run_dag(file: Path, name: str, home: Path, environment: dict[str, str]) -> dict[str, str]:
    """Run a DAG once in its process; the state and the number of tries of each task."""
    settings = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(file.parent),
        "PYTHONPATH": "",
    }
    python = _python(AIRFLOW)
    whole = {**os.environ, **settings, **environment}
    _checked([str(python), "-m", "airflow", "db", "migrate"], whole)
    printed = _checked([str(python), "-c", _RUN_DAG, str(file), name], whole)
    rows = [line.split() for line in printed.splitlines() if line.startswith("task ")]
    return {task: f"{state} {tries}" for _, task, state, tries in rows}


def materialize(file: Path, name: str, home: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Materialize an asset; the exit code and the output of the command."""
    home.mkdir(exist_ok=True)
    whole = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONPATH": "", **environment}
    command = [str(_python(DAGSTER)), "-m", "dagster", "asset", "materialize"]
    done = _run([*command, "-f", str(file), "--select", name], whole)
    return done.returncode, done.stdout + done.stderr


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def _checked(command: list[str], environment: dict[str, str]) -> str:
    done = _run(command, environment)
    if done.returncode:
        raise OracleError(f"{command} ended with {done.returncode}:\n{done.stderr[-4_000:]}")
    return done.stdout
