"""A short way to write a history by hand, for the checker's own tests."""

import dataclasses
from collections.abc import Sequence

from tests.checker.history import Action, Name, Op, Poll, Send, Type

STEP_NS = 1_000_000_000


def send(key: int, value: int, offset: int | None = None) -> Send:
    return Send(key, value, offset)


def poll(**records: Sequence[tuple[int, int]]) -> Poll:
    """`poll(k0=[(offset, value), …])`."""
    return Poll({int(name.removeprefix("k")): found for name, found in records.items()})


def op(
    type_: Type,
    *actions: Action,
    process: int = 0,
    name: Name | None = None,
    keys: Sequence[int] = (),
    rebalanced: Sequence[int] = (),
    is_from_beginning: bool = False,
) -> Op:
    """An operation that is over; `history` invokes it."""
    has_sends = any(isinstance(action, Send) for action in actions)
    has_others = any(not isinstance(action, Send) for action in actions)
    guessed: Name = "poll" if has_others else "send"
    if has_sends and has_others:
        guessed = "txn"
    return Op(
        0,
        0,
        process,
        type_,
        name or guessed,
        actions,
        tuple(keys),
        is_from_beginning,
        frozenset(rebalanced),
    )


def history(*ops: Op) -> list[Op]:
    """One after the other: each is invoked and completed before the next begins."""
    entries: list[Op] = []
    for one in ops:
        for type_ in ("invoke", one.type):
            place = len(entries)
            entry = dataclasses.replace(one, index=place, time_ns=place * STEP_NS, type=type_)
            entries.append(entry)
    return entries


def at_once(*ops: Op) -> list[Op]:
    """All are invoked before the first completes."""
    invoked = [dataclasses.replace(one, type="invoke") for one in ops]
    return [
        dataclasses.replace(one, index=place, time_ns=place * STEP_NS)
        for place, one in enumerate([*invoked, *ops])
    ]
