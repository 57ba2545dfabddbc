"""Options of commands that start Spark: its master, its settings, and its log file.

On a terminal Spark's messages would disturb the view, so they go to a file: the named one, or a
temporary one that is deleted unless the command fails. Otherwise they stay on standard error, where
a service manager expects them.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from penstock.cli.extras import extras_named
from penstock.cli.output import note

if TYPE_CHECKING:
    from penstock.spark.pipeline_runs import SessionChoice

Command = TypeVar("Command", bound=Callable[..., Any])


class SparkWish(NamedTuple):
    """The user's options for Spark."""

    master: str | None
    settings: Sequence[str]
    log: str | None


def spark_options(command: Command) -> Command:
    """Add `--master`, `--conf` and `--spark-log`."""
    log = click.option(
        "--spark-log",
        "log",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Where Spark's own messages go.  [default: standard error, unless it is a terminal]",
    )
    conf = click.option(
        "--conf",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of Spark; may be repeated.",
    )
    master = click.option("--master", help="Where Spark runs.  [default: local[*]]")
    return master(conf(log(command)))


@contextmanager
def chosen_session(wish: SparkWish) -> Iterator[SessionChoice]:
    """Yield the session choice of this command; if the command fails, report the log's path."""
    conf = parse_settings(wish.settings)
    with extras_named():
        from penstock.spark.pipeline_runs import SessionChoice

    is_temporary = wish.log is None and sys.stderr.isatty()
    path = _temporary_file() if is_temporary else wish.log and _writable(wish.log)
    try:
        yield SessionChoice(wish.master, conf, path or None)
    except Exception:
        if path and path.exists() and path.stat().st_size:
            note(f"Spark's own messages are in {path}")
            is_temporary = False
        raise
    finally:
        if is_temporary and path:
            path.unlink(missing_ok=True)


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Return Spark's settings by name."""
    found = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--conf {text!r} is not of the form NAME=VALUE.")
        found[name] = value
    return found


def _writable(log: str) -> Path:
    """Return the log's path; report an unwritable log before Spark starts."""
    path = Path(log)
    try:
        with path.open("ab"):
            return path
    except OSError as error:
        raise click.UsageError(f"--spark-log {log} cannot be written: {error.strerror}.") from error


def _temporary_file() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
    os.close(descriptor)
    return Path(name)
