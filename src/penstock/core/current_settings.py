"""`CurrentSettings`: one place that always has the settings in force.

A tree of settings never changes; when the broker takes new ones, this points to another tree. Who
needs a value that may change reads it from here each time, which costs two attribute look-ups. Who
decides that there are new ones is `node.live_settings`.
"""

from penstock.core.settings import Settings


class CurrentSettings:
    """The settings of a running broker."""

    __slots__ = ("settings",)

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
