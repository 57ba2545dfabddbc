"""Operations: a client's request, its time, and the answer. Saved as JSON lines.

Each operation is two entries of one process: `invoke`, and one of

- `ok`: it happened;
- `fail`: it did not happen, and never will;
- `info`: its outcome is unknown.

A process has one operation at a time. An `invoke` without a completion (the client was killed) is
completed as `info` by `completions`. A key is one partition; values are unique within a key.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

Type = Literal["invoke", "ok", "fail", "info"]
Name = Literal[
    "send",
    "poll",
    "txn",
    "assign",
    "subscribe",
    "commit",
    "committed",
    "crash",
    "delete-records",
    "retain",
    "compact",
    "recreate",
]
Records = Mapping[int, Sequence[tuple[int, int]]]


class HistoryError(ValueError):
    """The history itself is wrong: the recorder has a fault, not the log."""


@dataclasses.dataclass(frozen=True, slots=True)
class Send:
    """One value for one key; the offset when it is known."""

    key: int
    value: int
    offset: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Poll:
    """The result of one poll: for each key offsets with their values, in the order returned."""

    records: Records


@dataclasses.dataclass(frozen=True, slots=True)
class Commit:
    """Positions that were committed for the group."""

    positions: Mapping[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Committed:
    """Committed positions that the group got; None where there is none."""

    positions: Mapping[int, int | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """Offsets below which records were deleted."""

    positions: Mapping[int, int]


Action = Send | Poll | Commit | Committed | Cut


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One entry of a history. Two entries are never equal: each is an event of its own."""

    index: int
    time_ns: int
    process: int
    type: Type
    name: Name
    actions: tuple[Action, ...] = ()
    keys: tuple[int, ...] = ()
    """Of `assign` and `subscribe`: what is read from now on. Of operations that remove: of what."""
    is_from_beginning: bool = False
    """Of `assign`: positions are not kept."""
    rebalanced: frozenset[int] = frozenset()
    """Keys that were given or taken while the operation ran."""
    error: str = ""

    @property
    def sends(self) -> list[Send]:
        """The sends, in order."""
        return [action for action in self.actions if isinstance(action, Send)]

    @property
    def polls(self) -> list[Poll]:
        """The polls, in order."""
        return [action for action in self.actions if isinstance(action, Poll)]

    def reads(self) -> dict[int, list[int]]:
        """For each key the values of all polls, in order."""
        values: dict[int, list[int]] = {}
        for poll in self.polls:
            for key, records in poll.records.items():
                values.setdefault(key, []).extend(value for _, value in records)
        return values

    def writes(self) -> dict[int, list[int]]:
        """For each key the values sent, in order."""
        values: dict[int, list[int]] = {}
        for send in self.sends:
            values.setdefault(send.key, []).append(send.value)
        return values

    def short(self) -> str:
        """For a person: one line."""
        words = [_short(action) for action in self.actions]
        if self.keys:
            words.append(f"keys {list(self.keys)}")
        if self.rebalanced:
            words.append(f"rebalanced {sorted(self.rebalanced)}")
        if self.error:
            words.append(f"({self.error})")
        seconds = self.time_ns / 1e9
        head = f"#{self.index} {seconds:.3f} s process {self.process} {self.type} {self.name}"
        return f"{head}: {'; '.join(words)}"


RECORDS_SHOWN_MAX = 8
"""Of one poll in a report: the first and last; the whole is in the saved history."""


def _short(action: Action) -> str:
    match action:
        case Send(key, value, offset):
            return f"send {key}: {value}" + ("" if offset is None else f"@{offset}")
        case Poll(records):
            parts = []
            for key, found in sorted(records.items()):
                shown = [f"{value}@{offset}" for offset, value in found]
                if len(shown) > RECORDS_SHOWN_MAX:
                    half = RECORDS_SHOWN_MAX // 2
                    shown = [*shown[:half], f"… {len(shown)} …", *shown[-half:]]
                parts.append(f"{key}: {' '.join(shown)}")
            return f"poll {{{', '.join(parts)}}}"
        case Commit(positions):
            return f"commit {dict(positions)}"
        case Committed(positions):
            return f"committed {dict(positions)}"
        case Cut(positions):
            return f"delete below {dict(positions)}"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """An operation that is over, with the moment it was invoked."""

    invoked: Op
    op: Op


def completions(history: Sequence[Op]) -> list[Completion]:
    """Every operation once, in the order of completion; what never completed is `info`, last."""
    open_ops: dict[int, Op] = {}
    done = []
    for op in history:
        if op.type == "invoke":
            if op.process in open_ops:
                raise HistoryError(f"process {op.process} has two operations: {op.short()}")
            open_ops[op.process] = op
            continue
        invoked = open_ops.pop(op.process, None)
        if invoked is None:
            raise HistoryError(f"nobody invoked {op.short()}")
        done.append(Completion(invoked, op))
    last = history[-1] if history else None
    for number, invoked in enumerate(open_ops.values(), start=1):
        assert last is not None
        op = dataclasses.replace(
            invoked,
            index=last.index + number,
            time_ns=last.time_ns,
            type="info",
            error="never completed",
        )
        done.append(Completion(invoked, op))
    return done


# --- JSON lines ---


NUMBERS = ("index", "time_ns", "process")
"""Written even when they are 0."""


def _action_to_json(action: Action) -> list[Any]:
    match action:
        case Send(key, value, offset):
            return ["send", key, value, offset]
        case Poll(records):
            return [
                "poll",
                {str(key): [list(one) for one in found] for key, found in records.items()},
            ]
        case Commit(positions):
            return ["commit", {str(key): position for key, position in positions.items()}]
        case Committed(positions):
            return ["committed", {str(key): position for key, position in positions.items()}]
        case Cut(positions):
            return ["cut", {str(key): position for key, position in positions.items()}]


def _action_from_json(words: list[Any]) -> Action:
    name, *rest = words
    if name == "send":
        return Send(*rest)
    by_key = {int(key): value for key, value in rest[0].items()}
    if name == "poll":
        return Poll(
            {key: [(offset, value) for offset, value in found] for key, found in by_key.items()}
        )
    if name == "cut":
        return Cut(by_key)
    return Commit(by_key) if name == "commit" else Committed(by_key)


def op_to_json(op: Op) -> str:
    """One line, without what is empty."""
    fields: dict[str, Any] = {
        "index": op.index,
        "time_ns": op.time_ns,
        "process": op.process,
        "type": op.type,
        "name": op.name,
        "actions": [_action_to_json(action) for action in op.actions],
        "keys": list(op.keys),
        "is_from_beginning": op.is_from_beginning,
        "rebalanced": sorted(op.rebalanced),
        "error": op.error,
    }
    kept = {
        name: value
        for name, value in fields.items()
        if value not in ([], "", False) or name in NUMBERS
    }
    return json.dumps(kept)


def op_from_json(line: str) -> Op:
    """The other way."""
    fields = json.loads(line)
    fields["actions"] = tuple(_action_from_json(words) for words in fields.get("actions", ()))
    fields["keys"] = tuple(fields.get("keys", ()))
    fields["rebalanced"] = frozenset(fields.get("rebalanced", ()))
    return Op(**fields)


def save(history: Iterable[Op], path: Path) -> None:
    """Write JSON lines."""
    path.write_text("".join(f"{op_to_json(op)}\n" for op in history))


def load(path: Path) -> list[Op]:
    """Read JSON lines."""
    return [op_from_json(line) for line in path.read_text().splitlines()]
