"""`CurrentSettings`: always has the settings in force.

A tree of settings never changes; when the broker accepts new settings, this refers to another tree.
Code that needs a changeable value reads it from here each time, which costs two attribute lookups.
`node.settings.live_settings` replaces the tree.
"""

from penstock.core.settings.tree import Settings


class CurrentSettings:
    """The settings of a running broker."""

    __slots__ = ("settings",)

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
