"""`SiteOwner`: which broker and pipe has committed a position of a site. Pure.

The metadata of each offset that a site commits at the parent names the sender, behind the mark of
`up_pipe`. So a broker finds another broker with the same site, also if the pipes have different
names and therefore different transactional ids. An operator may commit offsets too: metadata of
another form names no sender.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.edge.pipes.up_pipe import SentMark

_SIGN: Final = "@"
_SEPARATOR: Final = "/"
_SENDER: Final = re.compile(r"([\w.-]{1,128})/([A-Za-z0-9][A-Za-z0-9._-]{0,62})", re.ASCII)
"""A cluster id and the name of a pipe: a message and a transactional id contain them."""


class SiteOwner(NamedTuple):
    """One sender of a site."""

    broker: str
    """The cluster id of the broker; a copied disk has the same."""
    pipe: str

    def sign(self, text: str) -> str:
        """Return the metadata of a committed offset with this sender."""
        return f"{text}{_SIGN}{self.broker}{_SEPARATOR}{self.pipe}"

    def others(self, found: Iterable["SiteOwner | None"]) -> list["SiteOwner"]:
        """Return the senders that are other brokers, in order."""
        return sorted({one for one in found if one is not None and one.broker != self.broker})

    def __str__(self) -> str:
        """Return the words of a message."""
        return f"the broker with cluster id {self.broker}, pipe {self.pipe!r}"


def read_signed(metadata: str) -> tuple[str, SiteOwner | None]:
    """Return the text of a committed offset, and its sender; None if there is none."""
    text, _, sender = metadata.partition(_SIGN)
    found = _SENDER.fullmatch(sender)
    if found is None or SentMark.parse(text) is None:
        return metadata, None
    return text, SiteOwner(found[1], found[2])
