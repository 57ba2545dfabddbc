"""A log that is cut in one leader epoch: no session gets or misses records without notice."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from penstock.edge.push.ports import PartitionView
from penstock.edge.push.reactions import Wanted
from penstock.edge.push.reads import SessionReads
from penstock.edge.push.record_runs import RunCache
from penstock.edge.push.session import PushSession
from penstock.node.push.push_broker import _version


def test_a_cut_gives_the_partition_another_version() -> None:
    log: Any = SimpleNamespace(truncations=0)
    hosted: Any = SimpleNamespace(
        topic_id=UUID(int=1), state=SimpleNamespace(leader_epoch=3), log=log
    )
    before = _version(hosted)
    log.truncations += 1
    assert _version(hosted) != before


@pytest.mark.parametrize(
    ("refreshes", "code", "words"),
    [
        (0, "OFFSET_OUT_OF_RANGE", "was cut, because its parent has other records"),
        (1, "NOT_LEADER_OR_FOLLOWER", "was replaced by a refresh"),
    ],
)
def test_a_session_ends_at_a_cut(refreshes: int, code: str, words: str) -> None:
    ends: list[tuple[str, str]] = []
    owner: Any = SimpleNamespace(client=None, lost=lambda reason, code: ends.append((reason, code)))
    views = [PartitionView((b"t", 3, cuts), 0, 5, cuts * refreshes) for cuts in (0, 0, 1)]
    server: Any = SimpleNamespace(
        broker=SimpleNamespace(may_read=lambda *_: True, view=lambda *_: views.pop(0)),
        cache=RunCache(),
        feeds=SimpleNamespace(park=lambda *_: None),
    )
    reads = SessionReads(owner, PushSession(0.0, needs_credentials=False), server)
    wanted = Wanted(1, "t", 0, 5, is_batch_format=False)
    assert reads.run_for(wanted) is None
    assert reads.run_for(wanted) is None
    assert not ends
    assert reads.run_for(wanted) is None
    ((reason, found),) = ends
    assert found == code
    assert words in reason
    assert "Connect and subscribe again" in reason
