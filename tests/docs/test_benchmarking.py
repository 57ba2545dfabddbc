"""The commands and the program of the guide on benchmarking run as they are printed, only shorter.

Times are replaced by short ones (an option that is given twice counts as given last), addresses by
those of brokers that run here. Figures are not compared: they depend on the reader's machine.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.penstock_broker import penstock_broker

pytestmark = pytest.mark.interop

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "guides" / "benchmarking.md").read_text()
COMMAND_LINE = (DOCS / "guides" / "command-line.md").read_text()
ADDRESS = "localhost:9092"
SHORTER = "--duration 0.5 --warmup 0.1"


def lines(text: str, beginning: str) -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    found = [line for block in blocks for line in block.splitlines() if line.startswith(beginning)]
    assert found
    return found


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with penstock_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running.bootstrap


def run(words: list[str], bootstrap: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    binaries = Path(sys.executable).parent
    return subprocess.run(
        words,
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PENSTOCK_BOOTSTRAP_SERVER": bootstrap,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("line", lines(GUIDE, "penstock bench"))
def test_every_command_measures(line: str, bootstrap: str, tmp_path: Path) -> None:
    shorter = line if "--count" in line else f"{line} {SHORTER}"
    command = shorter.replace("HOST:PORT", bootstrap).replace("--rounds 3", "--rounds 1")
    done = run(["bash", "-c", command], bootstrap, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "throughput" in done.stdout
    for name in re.findall(r"\S+\.(?:html|json)", line):
        assert (tmp_path / name).stat().st_size > 1000


def test_the_program_measures(bootstrap: str, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "measure.py").write_text(program.replace(ADDRESS, bootstrap))
    done = run([sys.executable, "measure.py"], bootstrap, tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d+ records/s\np99 \d+ µs\n", done.stdout)
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("line", lines(COMMAND_LINE, "penstock doctor"))
def test_the_doctor_comes(line: str, bootstrap: str, tmp_path: Path) -> None:
    done = run(["bash", "-c", line.replace(ADDRESS, bootstrap)], bootstrap, tmp_path)
    assert done.returncode in {0, 1}
    assert "penstock" in done.stdout.splitlines()[1]
