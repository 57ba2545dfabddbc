"""Pipes whose parent the registry chooses (pure).

A pipe with `parent = "registry"` gets the address of its parent and its topics from the topology of
this broker. Its own `topics` select among the registry's patterns; `*` selects all. Without a
topology, a parent or a selected topic the pipe does not exist. Everything else, such as TLS and
`on_gap`, is as declared. Other pipes stay as they are.
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
    if topology is None or topology.parent_address is None:
        return None
    topics = tuple(
        pattern
        for pattern in topology.down
        if any(is_match(pattern, selected) for selected in pipe.topics)
    )
    if not topics:
        return None
    return pipe.model_copy(update={"parent": topology.parent_address, "topics": topics})
