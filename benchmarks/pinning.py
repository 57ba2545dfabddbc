"""One core for the broker and one for its client, and a priority above that of bystanders.

Without pinning, two processes move between the cores, and on a shared machine the figures depend
more on other processes. Both brokers get the same core in turn; the idle one uses almost no CPU.
"""

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from typing import NamedTuple

from tests.oracle.cache import tool
from tests.oracle.running_broker import RunningBroker

PRIORITY = -10
"""A `nice` value, below the priority of the kernel's own threads."""


class Cores(NamedTuple):
    """The numbers of two cores of this machine."""

    broker: int
    client: int


def choose_cores(allowed: Sequence[int]) -> Cores | None:
    """Two of the cores that this process may use; None when there is only one."""
    if len(allowed) < 2:
        return None
    # The first core has most of the interrupts: the client shares it with them.
    return Cores(broker=max(allowed), client=min(allowed))


def pin_client(cores: Cores) -> None:
    """Pin this process, and the clients that it starts afterwards, to the client's core."""
    os.sched_setaffinity(0, {cores.client})


def pinned(broker: RunningBroker, cores: Cores) -> RunningBroker:
    """Return the broker, not started yet, with a command that pins it to its core."""
    taskset = tool("taskset", "install util-linux, or measure with --unpinned")
    command = [taskset, "--cpu-list", str(cores.broker), *broker.recipe.command]
    recipe = dataclasses.replace(broker.recipe, command=command)
    return RunningBroker(recipe, folder=broker.folder, port=broker.port)


def raise_priority() -> bool:
    """Raise the priority of this process and its children above bystanders; needs root."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
        return True
    return False


def describe(cores: Cores | None, *, has_priority: bool) -> str:
    """The line for a report."""
    if cores is None:
        text = "broker and client are not pinned to cores"
    else:
        text = f"the broker is pinned to core {cores.broker}, the client to core {cores.client}"
    return f"{text}; {f'priority {PRIORITY}' if has_priority else 'normal priority'}"
