"""`PipeBook`: the pipes that run on this broker, and what operators do with them.

A pipe is declared in `[[pipes]]`, or created over the admin port by `penstock mirror`; the second
kind ends with the broker, and its mirrors stay. Guarantees: each pipe has one task, a changed
declaration begins it anew, and all tasks end with the broker. A promotion works without its pipe,
because the mark of a mirror is in the metadata.

Imported when the first pipe is declared or asked for.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Final, NamedTuple

from penstock.client.property_file import parse_properties
from penstock.client.transport.options import BOOTSTRAP_SERVERS, ClientOptions, parse_client_options
from penstock.core.clock import Clock
from penstock.core.errors import (
    ConfigError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from penstock.core.settings.pipe_declarations import PIPES_MAX, PipeDeclaration
from penstock.edge.pipes.down_pipe import OnGap
from penstock.edge.pipes.kafka_parent import KafkaParent
from penstock.edge.pipes.pipe_health import Priority
from penstock.edge.pipes.pipe_runner import PipeRunner
from penstock.edge.pipes.pipe_status import PipeOptions, PipeStatus
from penstock.node.pipes.mirror_logs import MirrorLogs
from penstock.node.pipes.mirror_topics import MirrorTopics

CLIENT_CONFIG_BYTES_MAX: Final = 1_048_576


class UnknownPipeError(UnknownTopicOrPartitionError):
    """No pipe has this name."""


class _Running(NamedTuple):
    declaration: PipeDeclaration
    runner: PipeRunner
    task: asyncio.Task[None]
    is_declared: bool
    """Whether a settings file has it; others were created over the admin port."""


class PipeBook:
    """The pipes of one broker."""

    def __init__(
        self, topics: MirrorTopics, logs: MirrorLogs, clock: Clock, tasks: asyncio.TaskGroup
    ) -> None:
        self._topics = topics
        self._logs = logs
        self._clock = clock
        self._tasks = tasks
        self._running: dict[str, _Running] = {}
        self._random = SystemRandom().random

    # --- Which pipes run ---

    def follow(self, declared: Sequence[PipeDeclaration]) -> None:
        """Run exactly these pipes of the settings file, and the ones of the admin port."""
        wanted = {one.name: one for one in declared}
        for name, running in list(self._running.items()):
            if running.is_declared and wanted.get(name) != running.declaration:
                self._end(name)
        for name, declaration in wanted.items():
            if name in self._running and not self._running[name].is_declared:
                self._end(name)
            if name not in self._running:
                self._begin(declaration, is_declared=True)

    def create(self, declaration: PipeDeclaration) -> None:
        """Run a pipe until the broker stops; the same declaration again has no effect."""
        known = self._running.get(declaration.name)
        if known is not None and known.declaration == declaration:
            return
        if known is not None:
            raise PolicyViolationError(
                f"the pipe {declaration.name!r} runs with other options; end it first, or choose "
                "another name"
            )
        if len(self._running) >= PIPES_MAX:
            raise PolicyViolationError(f"{PIPES_MAX} pipes run already; end one of them first")
        self._begin(declaration, is_declared=False)

    def remove(self, name: str) -> None:
        """End a pipe that was created over the admin port; its mirrors stay."""
        if self._find(name).is_declared:
            raise PolicyViolationError(
                f"the pipe {name!r} is declared in the settings file; remove it there, or pause it"
            )
        self._end(name)

    def _begin(self, declaration: PipeDeclaration, *, is_declared: bool) -> None:
        runner = PipeRunner(
            options_of(declaration),
            partial(_open_parent, declaration),
            self._logs,
            self._clock,
            self._random,
        )
        task = self._tasks.create_task(runner.run(), name=f"pipe-{declaration.name}")
        self._running[declaration.name] = _Running(declaration, runner, task, is_declared)

    def _end(self, name: str) -> None:
        self._running.pop(name).task.cancel()

    async def stop(self) -> None:
        """End all pipes."""
        tasks = [one.task for one in self._running.values()]
        self._running.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _find(self, name: str) -> _Running:
        running = self._running.get(name)
        if running is None:
            raise UnknownPipeError(
                f"pipe {name!r} not found.", hint="List pipes with `penstock pipe list`."
            )
        return running

    # --- Operators ---

    def statuses(self) -> list[PipeStatus]:
        """Return the state of each pipe, by name."""
        return [self._running[name].runner.status() for name in sorted(self._running)]

    def status(self, name: str) -> PipeStatus:
        """Return the state of one pipe."""
        return self._find(name).runner.status()

    def pause(self, name: str) -> None:
        """Copy nothing until `resume`."""
        self._find(name).runner.pause()

    def resume(self, name: str) -> None:
        """Copy again."""
        self._find(name).runner.resume()

    async def promote(self, name: str, topics: Sequence[str]) -> list[str]:
        """Let clients write these mirrors of a pipe, or all; return their names."""
        mirrors = self._topics.of_pipe(name)
        if not mirrors and name not in self._running:
            self._find(name)
        for topic in topics:
            if topic not in mirrors:
                raise PolicyViolationError(f"{topic!r} is not a mirror of the pipe {name!r}")
        promoted = list(topics or mirrors)
        for topic in promoted:
            await self._topics.promote(topic)
        self._look_again(name)
        return promoted

    async def restore(self, name: str, topics: Sequence[str]) -> list[str]:
        """Let a pipe write these topics again, or all that were promoted; return their names."""
        running = self._find(name)
        wanted = list(topics) or list(running.runner.status().promoted)
        for topic in wanted:
            await self._topics.restore(topic, name)
        self._look_again(name)
        return wanted

    def _look_again(self, name: str) -> None:
        if name in self._running:
            self._running[name].runner.look_again()


def options_of(declaration: PipeDeclaration) -> PipeOptions:
    """Return the options of a declared pipe."""
    return PipeOptions(
        declaration.name,
        declaration.parent,
        declaration.topics,
        declaration.groups,
        OnGap(declaration.on_gap),
        Priority(declaration.priority),
        declaration.bytes_per_second_max,
        declaration.batch_bytes_max,
        declaration.poll_interval_ms,
    )


async def _open_parent(declaration: PipeDeclaration) -> KafkaParent:
    options = await asyncio.to_thread(_client_options, declaration)
    return KafkaParent(options, f"penstock-pipe-{declaration.name}")


def _client_options(declaration: PipeDeclaration) -> ClientOptions:
    """Return how to reach the parent; the file is read for each connection, as it may change."""
    given: dict[str, str] = {}
    path = declaration.client_config
    if path is not None:
        try:
            with Path(path).open("rb") as file:
                text = file.read(CLIENT_CONFIG_BYTES_MAX + 1).decode()
        except (OSError, ValueError) as error:
            raise ConfigError(f"the client settings {path} cannot be read: {error}") from error
        given = parse_properties(text)
    return parse_client_options({**given, BOOTSTRAP_SERVERS: declaration.parent})
