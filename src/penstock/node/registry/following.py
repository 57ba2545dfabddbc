"""Whether a broker follows or runs a registry, and how its pipes follow the topology.

The client is imported only if `registry.url` is set, and the registry only if
`registry.serve_port` is. A changed topology changes the settings in force, as a changed settings
file does, so pipes need no code of their own for it.
"""

import logging
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from penstock.cluster.image import Endpoint
from penstock.core.settings.tree import Settings
from penstock.node.foundation import Foundation
from penstock.node.pipes.pipe_door import PipeDoor

if TYPE_CHECKING:
    from penstock.edge.registry.documents import Health
    from penstock.edge.registry.topology_client import TopologyClient

logger = logging.getLogger(__name__)

REASON_CHARACTERS_MAX = 500
"""The bound of the registry."""


async def follow_registry(
    ground: Foundation, endpoints: tuple[Endpoint, ...], stack: AsyncExitStack
) -> "TopologyClient | None":
    """Return the client of the registry, which has begun to poll; None without a registry."""
    settings = ground.settings
    if settings.registry.serve_port is not None:
        from penstock.node.registry.inside_registry import open_registry  # few brokers have one

        settings = await open_registry(settings, ground.clock, stack)
    if settings.registry.url is None:
        return None
    # Only with a registry:
    from penstock.edge.registry.node_entry import Topology
    from penstock.node.registry.registry_pipes import resolved
    from penstock.node.registry.topology_wiring import open_topology

    client = await open_topology(
        settings, endpoints, ground.clock, ground.metrics, ground.tasks, stack
    )

    def follow(settings: Settings) -> None:
        client.interval_seconds = settings.registry.poll_interval_ms / 1_000

    def with_topology(settings: Settings) -> Settings:
        return settings.model_copy(update={"pipes": resolved(settings.pipes, client.topology)})

    def changed(_topology: Topology) -> None:
        ground.tasks.create_task(_adapt_again(ground))

    ground.live.add_followers(follow)
    ground.live.adapt_also(with_topology)
    await ground.live.adapt_again()
    client.followers.append(changed)
    return client


def report_pipes(client: "TopologyClient | None", pipes: PipeDoor) -> None:
    """Report the health of the pipes to the registry, if there is one."""
    if client is not None:
        client.health_source = partial(_health, pipes)


def _health(pipes: PipeDoor) -> "Health | None":
    """Return the health of the worst pipe, and the lag of all; None without pipes."""
    from penstock.edge.registry.documents import Health

    statuses = () if pipes.book is None else tuple(pipes.book.statuses())
    if not statuses:
        return None
    states = ("HEALTHY", "DEGRADED", "UNHEALTHY")
    worst = max(statuses, key=lambda one: states.index(one.health.state.value))
    reason = worst.health.reason
    return Health(
        state=worst.health.state.value,
        reason=f"pipe {worst.options.name}: {reason}"[:REASON_CHARACTERS_MAX] if reason else "",
        lag_records=sum(one.lag_records for one in statuses),
    )


async def _adapt_again(ground: Foundation) -> None:
    """Put a topology in force; its failure must not end the broker with the group of its tasks."""
    try:
        await ground.live.adapt_again()
    except Exception:
        logger.exception("the topology of the registry could not be put in force")
