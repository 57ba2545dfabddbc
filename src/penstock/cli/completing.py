"""Names for shell completion, fetched from the broker within a short time limit.

The shell waits for this at every press of Tab. So the broker has `ANSWER_SECONDS_MAX` for all
requests, including name resolution, but not counting the CPU time of this process. Without an
answer there are no names and no message, because a message would disturb the line that is being
typed.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from penstock.cli.options import BOOTSTRAP_DEFAULT, BOOTSTRAP_VARIABLE, COMMAND_CONFIG
from penstock.client.cluster import Cluster
from penstock.core.errors import PenstockError

ANSWER_SECONDS_MAX: Final = 0.3
SECONDS_IN_ALL_MAX: Final = 2.0
"""The limit including CPU time, so that a slow machine does not block the shell."""
_LOOK_SECONDS: Final = 0.02
NAMES_MAX: Final = 500
"""A longer list is not readable, and some shells are slow with it."""


def complete_topics(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return topics with this prefix; internal topics only for a prefix that begins with `__`."""
    shows_internal = incomplete.startswith("_")

    def ask(cluster: Cluster) -> list[str]:
        return [
            topic.name or ""
            for topic in cluster.all_topics()
            if shows_internal or not topic.is_internal
        ]

    return _matching(context, ask, incomplete)


def complete_groups(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return groups with this prefix."""
    from penstock.client.groups.groups import Groups  # imported before the broker's time starts

    def ask(cluster: Cluster) -> list[str]:
        return [group.group_id for group in Groups(cluster).list_all()]

    return _matching(context, ask, incomplete)


def _matching(
    context: click.Context, ask: Callable[[Cluster], list[str]], incomplete: str
) -> list[CompletionItem]:
    # Imported before the broker's time starts.
    from penstock.cli.brokers import open_cluster
    from penstock.cli.client_settings import client_settings

    if _is_unread(context):
        return []
    try:
        # Of this thread's context; the other thread has none.
        settings = client_settings(context, is_quiet=True)
    except PenstockError:
        return []

    def asked() -> list[str]:
        with open_cluster(
            bootstrap, ANSWER_SECONDS_MAX, is_quiet=True, settings=settings
        ) as cluster:
            return ask(cluster)

    given = context.params.get("bootstrap") or os.environ.get(BOOTSTRAP_VARIABLE)
    bootstrap = str(given or BOOTSTRAP_DEFAULT)
    names = answered_in_time(asked)
    taken = {str(one) for value in context.params.values() for one in _each(value)}
    matching = [one for one in sorted(names) if one.startswith(incomplete) and one not in taken]
    return [CompletionItem(name) for name in matching[:NAMES_MAX]]


def _is_unread(context: click.Context) -> bool:
    """Whether `--command-config` names a file that does not exist: TLS may be in it."""
    source = context.get_parameter_source("command_config")
    is_given = source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return is_given and not context.meta.get(COMMAND_CONFIG)


def _each(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


def answered_in_time(
    ask: Callable[[], list[str]], seconds_max: float = ANSWER_SECONDS_MAX
) -> list[str]:
    """Return the names, or none after the time limit; a late thread ends with the process."""
    found: list[str] = []

    def run() -> None:
        # Ignore every error: a message would disturb the line that is being typed.
        with suppress(Exception):
            found.extend(ask())

    thread = threading.Thread(target=run, daemon=True)
    begun, begun_computing = time.monotonic(), time.process_time()
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK_SECONDS)
        passed = time.monotonic() - begun
        waited = passed - (time.process_time() - begun_computing)
        if waited > seconds_max or passed > SECONDS_IN_ALL_MAX:
            break
    return [] if thread.is_alive() else found
