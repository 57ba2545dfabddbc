"""The page `lakehouse-in-five-minutes.md`, typed as printed into a folder, with a stopwatch.

Guarantees: files are written and commands run in the order of the page, in one folder and with the
variables that its `export` lines set. Nothing is changed but the texts of a given table: addresses,
paths, passwords. Standard output must be the printed one, except for times and ids. The clock runs
from the first command after the installation; the seconds of writing a file by hand are not in it.
It does NOT install anything: the environments of the tests take the place of the page's.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.docs.test_guides import commands

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "guides" / "lakehouse-in-five-minutes.md").read_text()
COMMAND_SECONDS_MAX: Final = 300
_PIECE: Final = re.compile(
    r"`(?P<file>[\w.]+\.(?:toml|py|properties))`[^\n]*\n\n```(?:toml|python|properties)\n"
    r"(?P<text>.*?)```"
    r"|```console\n(?P<block>.*?)```",
    re.DOTALL,
)
_VARYING: Final = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)", "TIME"),
    (r"cluster \S+", "cluster CLUSTER"),
)


@dataclass(frozen=True)
class Piece:
    """One thing to type: a file, or a command and what it prints."""

    file: str = ""
    text: str = ""
    command: str = ""
    printed: str = ""


@dataclass
class Desk:
    """A folder in which a reader types, and the variables of the reader's shell."""

    folder: Path
    replaced: Mapping[str, str]
    """What stands for addresses, paths and secrets of the page; longer texts first."""
    variables: dict[str, str] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """Return the text with the addresses, paths and secrets of the test."""
        for printed, own in self.replaced.items():
            text = text.replace(printed, own)
        return text

    def write(self, name: str, text: str) -> None:
        """Write a file of the page."""
        (self.folder / name).write_text(self.here(text))

    def type(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of the page; exported variables stay."""
        shell = self.here(command)
        if shell.startswith("export "):
            shell += " && env -0"
        done = subprocess.run(
            ["bash", "-c", shell],
            cwd=self.folder,
            env=_environment() | self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        if shell.endswith("env -0"):
            names = set(re.findall(r"\b([A-Z_]+)=", command))
            pairs = (one.partition("=") for one in done.stdout.split("\0"))
            self.variables |= {name: value for name, _, value in pairs if name in names}
            done.stdout = ""
        return done


def pieces(text: str = PAGE) -> Iterator[Piece]:
    """Return what a reader types, in the order of the page."""
    for found in _PIECE.finditer(text.partition("\n## If something is wrong\n")[0]):
        if found["file"] is not None:
            yield Piece(file=found["file"], text=found["text"])
            continue
        for command, printed in commands(found["block"]):
            yield Piece(command=command, printed=printed)


def wrong_commands(text: str = PAGE) -> Iterator[Piece]:
    """Return the commands of the last section, which fail, and the lines of their errors."""
    section = text.partition("\n## If something is wrong\n")[2]
    for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL):
        for command, printed in commands(block):
            yield Piece(command=command, printed=printed)


def has_lines(printed: str, output: str) -> bool:
    """Return whether each printed line is in the output; `…` stands for any text."""
    there = same_form(output)
    patterns = [".*".join(map(re.escape, one.split("…"))) for one in same_form(printed)]
    return all(any(re.fullmatch(one, line) for line in there) for one in patterns)


def type_page(desk: Desk) -> dict[str, float]:
    """Type the page; return the seconds from the first command to the end of each command."""
    begun, ended = 0.0, {}
    for piece in pieces():
        if piece.file:
            desk.write(piece.file, piece.text)
            continue
        begun = begun or time.perf_counter()
        done = desk.type(piece.command)
        ended[piece.command] = time.perf_counter() - begun
        assert same_form(done.stdout) == same_form(desk.here(piece.printed)), (
            f"{piece.command}\n{done.stdout}\n{done.stderr[-4000:]}"
        )
        assert done.returncode == 0, f"{piece.command}\n{done.stderr[-4000:]}"
    return ended


def same_form(text: str) -> list[str]:
    """Return the lines without what always differs, and without the width of columns."""
    for pattern, word in _VARYING:
        text = re.sub(pattern, word, text)
    return [" ".join(line.split()) for line in text.splitlines()]


def _environment() -> dict[str, str]:
    """Return the variables of a new shell: no settings of Penstock, S3 or Spark from outside."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PENSTOCK_", "AWS_", "SPARK_", "PYSPARK_"))
    }
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
