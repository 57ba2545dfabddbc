"""The user's cache folder: downloads and builds of tests are there, not in the repository.

Guarantees: a folder that `built` returns is whole. It is built beside its final place and renamed
when it is done, under a file lock, so that two test runs at once build once and a run that was
killed leaves no half. Names carry a hash of the content's sources, so that nothing stale is ever
used.

It is NOT cleaned: old entries stay until the user removes the folder.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

COMMAND_TIMEOUT_SECONDS = 900
"""A first download over a slow line takes minutes; past a quarter of an hour it is stuck."""


class OracleError(RuntimeError):
    """A real part could not be fetched, built or started; the message has the remedy."""


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/penstock`, or `~/.cache/penstock`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "penstock"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def content_key(*parts: str | bytes | Path) -> str:
    """A short hash over texts, bytes and the contents of files."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            data = part.read_bytes()
        else:
            data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:16]


def progress(text: str) -> None:
    """Long work says what it does; on the error stream, so that output stays parseable."""
    print(f"[oracle] {text}", file=sys.stderr, flush=True)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock of this name against other processes of this user."""
    folder = cache_folder() / "locks"
    folder.mkdir(exist_ok=True)
    with (folder / name.replace("/", "+")).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def built(name: str, build: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache, made by `build(empty folder)` if it is not there yet."""
    place = cache_folder() / name
    if place.exists():
        return place
    with locked(name):
        if place.exists():
            return place
        unfinished = place.with_name(place.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        build(unfinished)
        unfinished.rename(place)
    return place


def tool(name: str, advice: str) -> str:
    """The path of a program that must be installed, or an error that says how to get it."""
    found = shutil.which(name)
    if found is None:
        raise OracleError(f"'{name}' is not installed: {advice}")
    return found


def run(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = COMMAND_TIMEOUT_SECONDS,
) -> str:
    """Run to the end and return what it printed on both streams; a failure carries the end."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OracleError(f"{words[0]} did not finish in {timeout_seconds} s: {words}") from error
    if done.returncode != 0:
        tail = done.stdout[-4000:]
        shown = " ".join(words)[:400]
        raise OracleError(f"exit {done.returncode} from {shown}\n{tail}")
    return done.stdout
