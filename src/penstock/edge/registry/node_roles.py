"""The roles of nodes, and the rule between levels (pure).

ROOT is at the top, LOCAL at the bottom. Guarantees: a parent is always on a higher level than its
child, so a tree of valid parents has no cycle. It does NOT choose parents: `parent_assignment`
does.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """The role of a node in the tree."""

    ROOT = "ROOT"
    L2 = "L2"
    L3 = "L3"
    POS = "POS"
    LOCAL = "LOCAL"


ROLES: Final[tuple[Role, ...]] = (Role.ROOT, Role.L2, Role.L3, Role.POS, Role.LOCAL)
"""From the top to the bottom."""
LEVELS: Final[Mapping[Role, int]] = {role: level for level, role in enumerate(ROLES)}
SELF_CHOSEN: Final = frozenset({Role.POS, Role.LOCAL})
"""Roles that a node gets by asking for them. Nodes of the other roles feed other sites, so an
operator assigns these roles."""


def may_feed(parent: Role, child: Role) -> bool:
    """Whether a node of one role may be the parent of a node of another role."""
    return LEVELS[parent] < LEVELS[child]
