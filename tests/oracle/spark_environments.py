"""Python environments with one version of PySpark on one version of Python each.

    python -m tests.oracle.spark_environments --spark 4.3.0 --python 3.12 -- -m pytest -m spark

Guarantees: `interpreter(wanted)` is a Python of the wanted version that has PySpark of the wanted
version and everything else that the tests import. This interpreter is used when it is such a one;
otherwise the environment is in the user's cache folder, created at its first use (0.9 GB, two
minutes). Penstock is NOT installed there, so that one environment serves every checkout: `src` is
on the module path, and the kernels are compiled beside their source for that Python, again when the
source has changed.

Where a Python version is not installed, this one takes its place, and the output says so.
"""

import argparse
import dataclasses
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.oracle.cache import OracleError, built, content_key, locked, progress, run

ROOT = Path(__file__).resolve().parents[2]
SPARK_VERSIONS = ("4.2.0", "4.3.0")
PYTHON_VERSIONS = ("3.11", "3.12")
GROUPS = ("dev", "interop", "tables")
"""Of pyproject.toml: what the tests themselves import."""


@dataclasses.dataclass(frozen=True)
class SparkEnvironment:
    """The wanted versions, as in `4.3.0` and `3.12`."""

    spark: str
    python: str

    def __str__(self) -> str:
        return f"PySpark {self.spark}, Python {self.python}"


def this_environment() -> SparkEnvironment:
    """What runs now; without PySpark its version is empty."""
    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        spark = ""
    return SparkEnvironment(spark, f"{sys.version_info.major}.{sys.version_info.minor}")


def requirements(spark: str) -> list[str]:
    """What is installed into an environment, as pip is told."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    extra = project.get("optional-dependencies", {}).get("spark", [])
    groups = [line for name in GROUPS for line in settings["dependency-groups"][name]]
    lines = {*project["dependencies"], *extra, *groups}
    return [
        *sorted(line for line in lines if not line.startswith("pyspark")),
        f"pyspark=={spark}",
    ]


def find_python(wanted: str) -> str | None:
    """An interpreter of this version that starts: one on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [shutil.which(f"python{wanted}"), sys.executable]
    found += [str(path) for path in sorted(pyenv.glob(f"versions/{wanted}.*/bin/python{wanted}"))]
    for candidate in found:
        if candidate is not None and _starts_as(candidate, wanted):
            return candidate
    return None


def _starts_as(candidate: str, wanted: str) -> bool:
    """Whether it runs and is of this version: pyenv's stand-ins exist and do not always run."""
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        return run([candidate, "-c", question], timeout_seconds=30).strip() == wanted
    except (OracleError, OSError):
        return False


def interpreter(wanted: SparkEnvironment) -> str:
    """The Python program of an environment like this, made if it is not there yet."""
    if wanted == this_environment() and importlib.util.find_spec("pyarrow") is not None:
        return sys.executable
    base = find_python(wanted.python)
    if base is None:
        raise OracleError(
            f"Python {wanted.python} is not installed: install it (pyenv install {wanted.python}) "
            "or ask for another version"
        )
    wheels = requirements(wanted.spark)
    program = run([base, "-c", "import sys; print(sys.version)"]).strip()
    key = content_key(base, program, *wheels)

    def build(folder: Path) -> None:
        progress(f"making an environment for {wanted}: 0.9 GB, about two minutes")
        # Moved afterwards: `python` finds its packages from its own path, only the scripts beside
        # it have another path, and those are not used.
        run([base, "-m", "venv", folder])
        python = folder / "bin" / "python"
        run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"])
        run([python, "-m", "pip", "install", "--quiet", *wheels])

    place = built(f"spark/pyspark-{wanted.spark}-python-{wanted.python}-{key}", build)
    return str(place / "bin" / "python")


def compile_kernels(python: str) -> None:
    """Compile what Cython compiles beside its source, if the source is newer; seconds if not.

    A failure is one: without `PENSTOCK_COMPILE` setup.py would go on with plain Python.
    """
    with locked("kernels-" + content_key(str(ROOT))):
        command = [python, "setup.py", "-q", "build_ext", "--inplace"]
        run(command, folder=ROOT, environment={"PENSTOCK_COMPILE": "1"})


def variables(python: str) -> dict[str, str]:
    """What a process in such an environment needs to know."""
    own = str(ROOT / "src")
    inherited = os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": f"{own}{os.pathsep}{inherited}" if inherited else own,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def main(arguments: Sequence[str]) -> int:
    """Run Python in an environment; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.spark_environments")
    parser.add_argument("--spark", choices=SPARK_VERSIONS, default=SPARK_VERSIONS[0])
    parser.add_argument("--python", choices=PYTHON_VERSIONS, default=PYTHON_VERSIONS[0])
    parser.add_argument("command", nargs="+", help="arguments for Python, after --")
    options = parser.parse_args(arguments)
    python_version = options.python
    if find_python(python_version) is None:
        python_version = this_environment().python
        progress(f"Python {options.python} is not installed: {python_version} takes its place")
    wanted = SparkEnvironment(options.spark, python_version)
    program = interpreter(wanted)
    compile_kernels(program)
    progress(f"{wanted}: python {' '.join(options.command)}")
    environment = {**os.environ, **variables(program)}
    return subprocess.run(
        [program, *options.command], cwd=ROOT, env=environment, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
