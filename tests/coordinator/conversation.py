"""Golden conversations: a command, dashes, and the full reaction of a shard, in a text file.

    # What happens when ... (comments and blank lines are free)
    join client=a group=g
    ----
    reply 1: JoinGroupResponse(error_code=MEMBER_ID_REQUIRED, member_id=a-1)
    timer classic-heartbeat g a-1 in 10000 ms

A reaction is everything that leaves the shard: replies, records, timers, effects. Commands that are
the same for every shard are here (`advance`, `restart`, `topics`, `marker`); requests of clients,
results of effects and settings are in a `Vocabulary`. `pytest --rewrite` writes the reactions
again: read the difference before you commit it. The rig checks every invariant after every command.
"""

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol
from uuid import UUID

from penstock.coordinator.shard import Outcome, Producer, SetTimer
from tests.coordinator.rig import START_MS, Kind, ShardRig, ShardT, timer_text

SEPARATOR = "----"

Arguments = Mapping[str, str]
"""What follows a command: `key=value` pairs; a word without `=` is a key with an empty value."""


class Spoken(NamedTuple):
    """The request of a command."""

    request: Any
    version: int
    client_id: str = "client"


class Vocabulary(Kind[ShardT], Protocol[ShardT]):
    """The part of one kind of shard: its creation, its requests, the results of its effects."""

    commands: Mapping[str, Callable[[Arguments], Spoken]]
    """What clients can say, by the first word of the line."""

    def configure(self, arguments: Arguments) -> None:
        """`settings name=value ...`: before the first command."""
        ...

    def finish(self, rig: ShardRig[ShardT], arguments: Arguments) -> None:
        """`effect ...`: the first effect that waits has ended, as the arguments say."""
        ...

    def render_bytes(self, value: bytes) -> str | None:
        """Bytes that mean something to this shard, for people; None: as usual."""
        ...


class Conversation(Generic[ShardT]):
    """Plays one file."""

    def __init__(self, vocabulary: Vocabulary[ShardT]) -> None:
        self._vocabulary = vocabulary
        self._rig: ShardRig[ShardT] | None = None
        self._lines: list[str] = []

    def play(self, text: str) -> str:
        """The same text with the reactions that the shard really has."""
        output: list[str] = []
        in_reaction = False
        for line in text.splitlines():
            if in_reaction:
                if line.strip() == "":
                    in_reaction = False
                    output.append("")
                continue
            if line.strip() == SEPARATOR:
                in_reaction = True
                output += [SEPARATOR, *self._react(output[-1])]
            else:
                output.append(line)
        return "\n".join(output).rstrip() + "\n"

    def _react(self, command: str) -> list[str]:
        self._lines = []
        word, _, rest = command.partition(" ")
        pairs = (part.partition("=") for part in rest.split())
        arguments = {key: value for key, _, value in pairs}
        if word == "settings":
            assert self._rig is None, "settings come first"
            self._vocabulary.configure(arguments)
            return ["ok"]
        if self._rig is None:
            self._rig = ShardRig(self._vocabulary, watch=self._watch)
            self._lines = []
        self._command(self._rig, word, arguments)
        return self._lines or ["nothing"]

    def _command(self, rig: ShardRig[ShardT], word: str, arguments: Arguments) -> None:
        if word == "advance":
            rig.advance(int(next(iter(arguments))))
        elif word == "restart":
            rig.restart()
        elif word == "topics":
            rig.set_topics({name: int(count) for name, count in arguments.items()})
        elif word == "marker":
            producer = Producer(int(arguments["producer"]), int(arguments.get("epoch", "0")))
            rig.mark(producer, commits="commit" in arguments)
        elif word == "effect":
            self._vocabulary.finish(rig, arguments)
        else:
            spoken = self._vocabulary.commands[word](arguments)
            rig.ask(spoken.request, spoken.version, spoken.client_id)

    def _watch(self, event: str, outcome: Outcome) -> None:
        rig = self._rig
        if rig is not None and event not in {"ask", "restart", "topics", "effect"}:
            self._lines.append(f"at {rig.now_ms - START_MS} ms: {event} fires")
        if outcome.producer is not None:
            self._lines.append(f"as {render(outcome.producer, self._vocabulary.render_bytes)}")
        for record in outcome.records:
            key = self._render(record.key)
            value = "nothing" if record.value is None else self._render(record.value)
            self._lines += [f"write {key}", f"   -> {value}"]
        self._lines += [f"reply {r.ticket}: {self._render(r.response)}" for r in outcome.replies]
        for timer in outcome.timers:
            name = timer_text(timer.key)
            if isinstance(timer, SetTimer):
                self._lines.append(f"timer {name} in {timer.delay_ms} ms")
            elif rig is not None and timer.key in rig.timers:
                self._lines.append(f"timer {name} cancelled")
        self._lines += [f"effect {self._render(effect)}" for effect in outcome.effects]

    def _render(self, value: object) -> str:
        return render(value, self._vocabulary.render_bytes)


def render(value: object, render_bytes: Callable[[bytes], str | None]) -> str:
    """A message for people: fields that are empty or have their default are left out."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        known = render_bytes(value)
        if known is not None:
            return known
        return repr(value)[1:] if value.isascii() else f"0x{value.hex()}"
    if isinstance(value, UUID):
        return f"id-{value.int}" if value.int < 1_000_000 else str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (
            f"{field.name}={render(getattr(value, field.name), render_bytes)}"
            for field in dataclasses.fields(value)
            if not _is_dull(getattr(value, field.name), field.default)
        )
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        pairs = value._asdict().items()
        fields = (f"{name}={render(part, render_bytes)}" for name, part in pairs)
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, tuple | list | set | frozenset):
        parts = sorted(value) if isinstance(value, set | frozenset) else value
        return f"[{', '.join(render(part, render_bytes) for part in parts)}]"
    return str(value)


def _is_dull(value: object, default: object) -> bool:
    return value == default or value is None or value in ("", b"", ())


def check_file(path: Path, vocabulary: Vocabulary[ShardT], *, rewrite: bool) -> None:
    """Play a file; what differs is a failure, or is written anew."""
    expected = path.read_text(encoding="utf-8")
    actual = Conversation(vocabulary).play(expected)
    if rewrite:
        path.write_text(actual, encoding="utf-8")
    else:
        assert actual == expected, f"{path.name}: read the difference, then use --rewrite"
