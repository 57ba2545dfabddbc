"""`TopologyFollower`: which answer of the registry a node follows (pure).

The last good answer is used for ever: a registry that is unreachable, or that answers nonsense,
changes nothing. Guarantees:

- an answer is refused with a reason if it is not the JSON of a topology, is for another node, names
  the node as its own parent, gives a ROOT a parent, or is older than the one that is followed;
- after `OLDER_ANSWERS_MAX` older answers in a row the registry is followed again: the revision on
  the disk was wrong then, and a cache or a copy does not answer alone for so long;
- an answer without a parent keeps the parent of before: to be without a parent is no better;
- polls are spread: 80 to 120 % of the interval, and anywhere within the first interval after a
  start with a known topology. So sites that return at the same time do not poll at the same time.

It does NOT poll or store: `topology_client` does.
"""

import re
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from penstock.edge.registry.documents import TopologyDocument
from penstock.edge.registry.node_entry import Parent, Topology
from penstock.edge.registry.node_roles import Role

JITTER: Final = 0.2
RETRY_AFTER_SECONDS_MAX: Final = 3_600.0
"""The longest pause that a registry can ask for."""
OLDER_ANSWERS_MAX: Final = 20
"""Ten minutes of polls: a revision that no registry gave does not cut a node off for ever."""
FIRST_SECONDS_MAX: Final = 1.0
"""A node without a topology registers within this time."""
REASON_CHARACTERS_MAX: Final = 300
_CONTROL: Final = re.compile(r"[^ -~]")


@dataclass(frozen=True, slots=True)
class RefusedAnswer:
    """An answer that is not followed."""

    reason: str


class TopologyFollower:
    """The topology of one node."""

    def __init__(self, node_id: str, last: TopologyDocument | None = None) -> None:
        """`last` is the answer that the node has on its disk."""
        self.node_id = node_id
        self.last = last if last is not None and last.id == node_id else None
        self._older_answers = 0
        """Answers in a row with a revision below the one that is followed."""
        self._older_revision = 0
        """The revision of the last of these answers; a lower one begins the row anew."""

    def judge(self, data: bytes) -> TopologyDocument | RefusedAnswer:
        """Return the topology of an answer, to be stored and then passed to `follow`."""
        try:
            found = TopologyDocument.model_validate_json(data, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            return RefusedAnswer(f"not a topology: {where}: {first['msg']}"[:REASON_CHARACTERS_MAX])
        problem = self._problem(found)
        if problem is not None:
            return RefusedAnswer(problem)
        last = self.last
        if last is not None and self._is_older(found, last) and not self._is_believed(found):
            return RefusedAnswer(
                f"the answer has revision {found.revision}, and revision {last.revision} is known: "
                "a cache or a copy of the registry has answered. It is followed after "
                f"{OLDER_ANSWERS_MAX} such answers in a row"
            )
        if found.parent is None and found.role is not Role.ROOT and last is not None:
            return found.model_copy(update={"parent": last.parent})
        return found

    def follow(self, found: TopologyDocument) -> bool:
        """Follow a topology; return whether it differs from the one before."""
        before = self.last
        self.last = found
        self.confirm()
        return before is None or topology_of(before) != topology_of(found)

    def confirm(self) -> None:
        """The registry has confirmed the revision that is followed."""
        self._older_answers = self._older_revision = 0

    def first_pause_seconds(self, interval_seconds: float, fraction: float) -> float:
        """Return the time until the first call; `fraction` is random, from 0 to 1."""
        return fraction * (FIRST_SECONDS_MAX if self.last is None else interval_seconds)

    @staticmethod
    def _is_older(found: TopologyDocument, last: TopologyDocument) -> bool:
        return found.registry == last.registry and found.revision < last.revision

    def _is_believed(self, found: TopologyDocument) -> bool:
        """Count an older answer; return whether the row is long enough and never fell."""
        has_fallen = found.revision < self._older_revision
        self._older_answers = 1 if has_fallen else self._older_answers + 1
        self._older_revision = found.revision
        return self._older_answers > OLDER_ANSWERS_MAX

    def _problem(self, found: TopologyDocument) -> str | None:
        if found.id != self.node_id:
            return f"the answer is for node {found.id}, and this is {self.node_id}"
        if found.parent is not None and found.parent.id == self.node_id:
            return f"the answer names node {self.node_id} as its own parent"
        if found.role is Role.ROOT and found.parent is not None:
            return f"the answer gives the ROOT a parent, {found.parent.id}"
        return None


def pause_seconds(
    interval_seconds: float, fraction: float, retry_after_seconds: float | None = None
) -> float:
    """Return the time until the next call; `fraction` is random, from 0 to 1."""
    spread = 1 - JITTER + 2 * JITTER * fraction
    asked = min(retry_after_seconds or 0.0, RETRY_AFTER_SECONDS_MAX)
    return max(interval_seconds, asked) * spread


def topology_of(document: TopologyDocument) -> Topology:
    """Return the value that pipes follow."""
    parent = document.parent
    return Topology(
        id=document.id,
        role=document.role,
        parent=None if parent is None else Parent(parent.id, dict(parent.addresses)),
        down=document.down,
        up=document.up,
        revision=document.revision,
        instance=document.instance,
    )


def plain(text: str) -> str:
    """Return a text of a peer for a log: without control characters, and short."""
    return _CONTROL.sub("?", text)[:REASON_CHARACTERS_MAX]
