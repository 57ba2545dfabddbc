"""`PipeBook`: the pipes that run on this broker, and what operators do with them.

A pipe is declared in `[[pipes]]`, or created over the admin port by `penstock mirror`; the second
kind ends with the broker, and its mirrors stay. Guarantees: each pipe has one task, a changed
declaration begins it anew, and all tasks end with the broker. A promotion works without its pipe,
because the mark of a mirror is in the metadata.

Imported when the first pipe is declared or asked for.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.client.property_file import parse_properties
from penstock.client.transport.options import BOOTSTRAP_SERVERS, ClientOptions, parse_client_options
from penstock.core.clock import Clock
from penstock.core.errors import (
    BrokerUnreachableError,
    ConfigError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from penstock.core.settings.pipe_declarations import PIPES_MAX, PipeDeclaration
from penstock.core.settings.registry_settings import PARENT_OF_REGISTRY
from penstock.core.types import TopicPartition
from penstock.edge.pipes.down_pipe import OnGap
from penstock.edge.pipes.kafka_parent import KafkaParent
from penstock.edge.pipes.kafka_upstream import KafkaUpstream, open_upstream
from penstock.edge.pipes.pipe_health import Priority
from penstock.edge.pipes.pipe_runner import PipeRunner
from penstock.edge.pipes.pipe_status import PipeOptions, PipeStatus
from penstock.edge.pipes.ports import Parent
from penstock.edge.pipes.site_owner import SiteOwner
from penstock.edge.pipes.up_runner import Start, UpRunner
from penstock.node.pipes.mirror_logs import MirrorLogs
from penstock.node.pipes.mirror_topics import MirrorTopics
from penstock.node.pipes.site_logs import FileNote, Holder, MemoryNote, SiteLogs

if TYPE_CHECKING:
    from penstock.node.pipes.installing import SnapshotInstaller

CLIENT_CONFIG_BYTES_MAX: Final = 1_048_576


class UnknownPipeError(UnknownTopicOrPartitionError):
    """No pipe has this name."""


class _Running(NamedTuple):
    declaration: PipeDeclaration
    runner: PipeRunner | UpRunner
    task: asyncio.Task[None]
    is_declared: bool
    """Whether a settings file has it; others were created over the admin port."""


class PipeBook:
    """The pipes of one broker."""

    def __init__(
        self,
        topics: MirrorTopics,
        logs: MirrorLogs,
        sites: SiteLogs,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        *,
        site: str,
        broker: str,
        note_directory: str | None,
    ) -> None:
        """`site` is the name of this broker in the registry, `broker` its own identity.

        No directory: notes in memory.
        """
        self._topics = topics
        self._logs = logs
        self._sites = sites
        self._site = site
        self._broker = broker
        self._note_directory = note_directory
        self._clock = clock
        self._tasks = tasks
        self._running: dict[str, _Running] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._random = SystemRandom().random
        self._installer: SnapshotInstaller | None = None
        logs.refresh_with = self._refresh

    def installer(self) -> "SnapshotInstaller":
        """Return the installer of snapshots in mirrors; one for the broker."""
        if self._installer is None:
            from penstock.node.pipes.installing import SnapshotInstaller

            self._installer = SnapshotInstaller(self._topics, self._logs)
        return self._installer

    async def _refresh(self, pipe: str, at: TopicPartition, offset: int) -> None:
        """Replace a topic by the snapshot of its pipe, for `on_gap = "refresh"`."""
        place = self._find(pipe).declaration.refresh_from
        if place is None:
            raise ConfigError(
                f"the pipe {pipe!r} has no refresh_from", hint="set it to a directory of snapshots"
            )
        await self.installer().install_newer(at, place.replace("{topic}", at.topic), offset)

    @property
    def tasks(self) -> asyncio.TaskGroup:
        """The tasks of the broker."""
        return self._tasks

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
        if not self._holders():
            self._sites.release()

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
        is_up = declaration.direction == "up"
        runner = self._up_runner(declaration) if is_up else self._down_runner(declaration)
        before = self._ending.pop(declaration.name, None)
        task = self._tasks.create_task(_run(runner, before), name=f"pipe-{declaration.name}")
        self._running[declaration.name] = _Running(declaration, runner, task, is_declared)
        if is_up:
            self._sites.hold(self._holders)

    def _down_runner(self, declaration: PipeDeclaration) -> PipeRunner:
        return PipeRunner(
            options_of(declaration),
            partial(_open_parent, declaration, self._clock),
            self._logs,
            self._clock,
            self._random,
        )

    def _up_runner(self, declaration: PipeDeclaration) -> UpRunner:
        options = options_of(declaration, self._site)
        directory = self._note_directory
        note = (
            MemoryNote()
            if directory is None
            else FileNote(f"{directory}/pipe-{declaration.name}.json")
        )
        return UpRunner(
            options,
            partial(
                _open_upstream,
                declaration,
                options.site,
                SiteOwner(self._broker, declaration.name),
                self._clock,
                partial(self._senders, options.site),
            ),
            self._sites,
            note,
            self._clock,
            self._random,
        )

    def _senders(self, site: str) -> list[str]:
        """Return the names of the pipes that send as a site."""
        return [
            name
            for name, one in self._running.items()
            if isinstance(one.runner, UpRunner)
            and one.runner.options.site == site
            and not (one.runner.is_paused or one.runner.is_fenced)
        ]

    def _holders(self) -> list[Holder]:
        """Return the functions that name unsent records; retention asks them."""
        return [
            one.runner.held_from
            for one in self._running.values()
            if isinstance(one.runner, UpRunner)
        ]

    def _end(self, name: str) -> None:
        task = self._running.pop(name).task
        task.cancel()
        self._ending[name] = task
        task.add_done_callback(lambda _: self._ended(name, task))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if self._ending.get(name) is task:
            del self._ending[name]

    async def stop(self) -> None:
        """End all pipes. Retention keeps unsent records until the broker has stopped."""
        tasks = [one.task for one in self._running.values()]
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
        running = self._down(name)
        wanted = list(topics) or list(running.runner.status().promoted)
        for topic in wanted:
            await self._topics.restore(topic, name)
        self._look_again(name)
        return wanted

    def reset(self, name: str, topics: Sequence[str], start: Start) -> list[str]:
        """Send topics of an up pipe from the start or the end of their logs; return their names."""
        runner = self._find(name).runner
        if not isinstance(runner, UpRunner):
            raise PolicyViolationError(f"the pipe {name!r} copies down; its position is its log")
        return runner.reset(topics, start)

    def _down(self, name: str) -> _Running:
        running = self._find(name)
        if isinstance(running.runner, UpRunner):
            raise PolicyViolationError(f"the pipe {name!r} sends up; it has no mirrors")
        return running

    def compare_again(self, topic: str) -> None:
        """Let the pipe of a mirror compare it with the parent again: its log was replaced."""
        found = self._topics.find(topic)
        if found is not None and found.mirror is not None:
            self._look_again(found.mirror.pipe)

    def _look_again(self, name: str) -> None:
        if name in self._running:
            self._running[name].runner.look_again()


def options_of(declaration: PipeDeclaration, site: str = "") -> PipeOptions:
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
        declaration.direction,
        declaration.site or site,
        declaration.on_full == "drop_oldest",
    )


async def _open_parent(declaration: PipeDeclaration, clock: Clock) -> Parent:
    if declaration.transport == "http":
        # Only for pipes over HTTP:
        from penstock.node.pipes.http_opening import open_http_parent

        return await asyncio.to_thread(
            open_http_parent, declaration, partial(_given, declaration), clock.monotonic
        )
    options = await asyncio.to_thread(_client_options, declaration)
    return KafkaParent(options, f"penstock-pipe-{declaration.name}")


async def _run(runner: PipeRunner | UpRunner, before: asyncio.Task[None] | None) -> None:
    """Run a pipe after the one that it replaces has ended, and has noted its position."""
    if before is not None:
        await asyncio.wait([before])
    await runner.run()


async def _open_upstream(
    declaration: PipeDeclaration,
    site: str,
    owner: SiteOwner,
    clock: Clock,
    senders: Callable[[], Collection[str]],
) -> KafkaUpstream:
    if declaration.parent == PARENT_OF_REGISTRY:
        raise BrokerUnreachableError("the registry has named no parent yet")
    options = await asyncio.to_thread(_client_options, declaration)
    return open_upstream(options, site, owner, clock, senders())


def _client_options(declaration: PipeDeclaration) -> ClientOptions:
    """Return how to reach the parent; the file is read for each connection, as it may change."""
    given = _given(declaration)
    return parse_client_options({**given, BOOTSTRAP_SERVERS: declaration.parent})


def _given(declaration: PipeDeclaration) -> dict[str, str]:
    """Return the settings of the file of a pipe."""
    path = declaration.client_config
    if path is None:
        return {}
    try:
        with Path(path).open("rb") as file:
            text = file.read(CLIENT_CONFIG_BYTES_MAX + 1).decode()
    except (OSError, ValueError) as error:
        raise ConfigError(f"the client settings {path} cannot be read: {error}") from error
    return parse_properties(text)
