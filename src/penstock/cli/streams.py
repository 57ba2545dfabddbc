"""Standard streams that a shell closed (`>&-`), or whose reader has ended.

A process that starts with descriptor 1 closed gets its next file or socket as number 1, and output
would go into it. So `open_missing_streams` runs first and opens the null device at the number of
each closed stream. Output is then discarded, as with `> /dev/null`. Closed input is recorded: a
command that needs it fails instead of reading nothing.
"""

import os
import sys
from typing import Final, TextIO

from penstock.cli.options import WrongUsageError

_NAMES: Final = ("stdin", "stdout", "stderr")
_missing: set[str] = set()
"""Streams that were closed when this process started; a global, because streams are global."""


def open_missing_streams() -> None:
    """Open the null device in place of each closed standard stream. Must run before other files."""
    for number, name in enumerate(_NAMES):
        if getattr(sys, name) is None:
            _missing.add(name)
            mode = "r" if name == "stdin" else "w"
            descriptor = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def input_descriptor() -> int:
    """Return the descriptor of standard input; raise a usage error if it is closed."""
    if "stdin" in _missing:
        raise WrongUsageError(
            "standard input is closed.", hint="Pipe lines into the command, or name a --file."
        )
    return sys.stdin.fileno()


def silence(stream: TextIO) -> None:
    """Send the rest of this stream to the null device, so that no later flush fails."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)
