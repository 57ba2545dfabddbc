"""A stop while the disk is full: no later portion is written without the earlier one."""

import threading
from types import SimpleNamespace
from typing import Any

from penstock.materialize.row_store import Portion, StoreFullError
from penstock.materialize.topic_follower import TopicFollower


def portion_to(offset: int) -> Portion:
    portion = Portion()
    portion.advance("price", 1, 0, offset)
    return portion


def test_after_a_dropped_portion_no_later_one_is_written() -> None:
    follower = TopicFollower.__new__(TopicFollower)
    parts: Any = follower
    parts._stop = threading.Event()
    parts._board = SimpleNamespace(store_trouble=lambda _: None)
    parts._reload = parts._publish = lambda *_: None
    written: list[Portion] = []

    def apply(portion: Portion) -> list[str]:
        if not parts._stop.is_set():
            parts._stop.set()
            raise StoreFullError("full")
        written.append(portion)
        return []

    parts._store = SimpleNamespace(apply=apply)
    follower._write(portion_to(10))
    follower._write(portion_to(20))
    assert not written
