"""Pipes whose parent the registry chooses (pure).

A pipe with `parent = "registry"` gets the address of its parent and its topics from the topology of
this broker: those of `down` or of `up`. Its own `topics` select among the registry's patterns; `*`
selects all. Without a topology, a parent or a selected topic a pipe down does not exist. A pipe up
stays without a topology or a parent, and waits for one: retention asks it for the records that were
not sent. Everything else, such as TLS and `on_gap`, is as declared. Other pipes stay as they are.
"""

from penstock.core.settings.pipe_declarations import PipeDeclaration, is_match
from penstock.core.settings.registry_settings import PARENT_OF_REGISTRY
from penstock.edge.registry.node_entry import Topology


def resolved(
    pipes: tuple[PipeDeclaration, ...], topology: Topology | None
) -> tuple[PipeDeclaration, ...]:
    """Return the pipes to run with this topology."""
    found = (
        pipe if pipe.parent != PARENT_OF_REGISTRY else _with_topology(pipe, topology)
        for pipe in pipes
    )
    return tuple(pipe for pipe in found if pipe is not None)


def _with_topology(pipe: PipeDeclaration, topology: Topology | None) -> PipeDeclaration | None:
    is_up = pipe.direction == "up"
    if topology is None:
        return pipe if is_up else None
    topics = tuple(
        pattern
        for pattern in (topology.up if is_up else topology.down)
        if any(is_match(pattern, selected) for selected in pipe.topics)
    )
    parent = topology.parent_address or (PARENT_OF_REGISTRY if is_up else None)
    if not topics or parent is None:
        return None
    return pipe.model_copy(update={"parent": parent, "topics": topics})
