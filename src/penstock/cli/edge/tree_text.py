"""A tree of brokers as text: one line for each node, children below their parent (pure).

Nodes without a parent that are not ROOT come last. A node whose parent is unknown counts as one of
them, so each node has one line. Fields of a line are separated by two spaces.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.core.quantities import printable
from penstock.edge.registry.documents import NodeDocument
from penstock.edge.registry.node_roles import LEVELS, Role

_LINES: Final = ("├── ", "└── ", "│   ", "    ")
_ASCII: Final = ("|-- ", "`-- ", "|   ", "    ")


def tree_lines(
    nodes: Sequence[NodeDocument], *, depth_max: int | None = None, is_ascii: bool = False
) -> Iterator[str]:
    """Yield the lines of a tree, down to a depth."""
    known = {one.id for one in nodes}
    below: dict[str, list[NodeDocument]] = defaultdict(list)
    tops = []
    for one in sorted(nodes, key=lambda one: (LEVELS[one.role], one.id)):
        if one.parent is None or one.parent not in known:
            tops.append(one)
        else:
            below[one.parent].append(one)
    marks = _ASCII if is_ascii else _LINES
    roots = [one for one in tops if one.role is Role.ROOT]
    orphans = [one for one in tops if one.role is not Role.ROOT]
    for one in roots:
        yield from _branch(one, below, marks, "", "", depth_max)
    if orphans:
        yield "without a parent:" if roots else "no ROOT; without a parent:"
    for one in orphans:
        yield from _branch(one, below, marks, "  ", "  ", depth_max)


def _branch(
    one: NodeDocument,
    below: dict[str, list[NodeDocument]],
    marks: tuple[str, str, str, str],
    own: str,
    inner: str,
    depth_max: int | None,
) -> Iterator[str]:
    """Yield a node and its children; levels differ, so the depth is bounded."""
    yield own + _line(one)
    children = below.get(one.id, [])
    if depth_max is not None and depth_max <= 1:
        return
    for number, child in enumerate(children):
        is_last = number == len(children) - 1
        branch, space = (marks[1], marks[3]) if is_last else (marks[0], marks[2])
        depth = None if depth_max is None else depth_max - 1
        yield from _branch(child, below, marks, inner + branch, inner + space, depth)


def _line(one: NodeDocument) -> str:
    fields = [one.id, one.role.value, one.state]
    if one.children:
        fields.append(f"{one.children} {'child' if one.children == 1 else 'children'}")
    if one.lag_records is not None:
        seconds = "" if one.lag_seconds is None else f" ({one.lag_seconds:.0f} s)"
        fields.append(f"lag {one.lag_records:,}{seconds}")
    if one.reason:
        fields.append(printable(one.reason))
    return "  ".join(fields)
