"""`Consumer` and `run`: a decorated handler, and the process that runs one or several.

    penstock.run(handle_order, handle_payment)      # until SIGTERM or SIGINT
    await handle_order.run()                        # in a loop that exists already

A stop finishes running handlers, commits and leaves the group. If one consumer of `run` fails, the
others stop in order, and its error is raised.
"""

import asyncio
import functools
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.consumers.errors import ConsumerError
from penstock.consumers.options import ConsumerOptions, Mode
from penstock.consumers.ports import Transport
from penstock.consumers.running.consumer_run import ConsumerRun

BOOTSTRAP_VARIABLE: Final = "PENSTOCK_BOOTSTRAP_SERVER"
BOOTSTRAP_DEFAULT: Final = "localhost:9092"
PUSH_VARIABLE: Final = "PENSTOCK_PUSH_SERVER"
PUSH_DEFAULT: Final = "localhost:9095"


class Consumer:
    """A handler with its options. It can still be called as the plain function."""

    def __init__(self, handler: Callable[[Any], Any], options: ConsumerOptions) -> None:
        functools.update_wrapper(self, handler)
        self.handler = handler
        self.options = options
        self._run: ConsumerRun | None = None
        self._is_stop_asked = False

    def __call__(self, record: Any) -> Any:  # noqa: ANN401 (the handler's own types)
        """Call the handler, without retry and dead letters."""
        return self.handler(record)

    async def run(
        self,
        *,
        bootstrap_server: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Consume until `stop` is called; raise the error that ended the consumer."""
        if self._run is not None:
            raise ConsumerError(f"the consumer of {self.options.topic!r} runs already.")
        transport = self._transport(bootstrap_server, settings or {})
        self._run = ConsumerRun(self.options, self.handler, transport)
        try:
            if not self._is_stop_asked:
                await self._run.run()
        finally:
            self._run = None
            self._is_stop_asked = False

    def stop(self) -> None:
        """Begin to end `run`; call it on the event loop of the consumer."""
        self._is_stop_asked = True
        if self._run is not None:
            self._run.stop()

    def _transport(self, bootstrap_server: str | None, settings: Mapping[str, str]) -> Transport:
        bootstrap = (
            bootstrap_server
            or self.options.bootstrap_server
            or os.environ.get(BOOTSTRAP_VARIABLE)
            or BOOTSTRAP_DEFAULT
        )
        chosen = {**self.options.settings, **settings}
        push_server = self.options.push_server or os.environ.get(PUSH_VARIABLE)
        is_auto = self.options.transport == "auto" and bootstrap_server is None
        if self.options.transport == "push" or (is_auto and push_server):
            from penstock.consumers.push.push_transport import PushTransport

            return PushTransport(self.options, push_server or PUSH_DEFAULT, chosen)
        if self.options.mode is Mode.QUEUE:
            from penstock.consumers.kafka.share_transport import ShareTransport

            return ShareTransport(self.options, bootstrap, chosen)
        from penstock.consumers.kafka.group_transport import GroupTransport

        return GroupTransport(self.options, bootstrap, chosen)


def run(
    *consumers: Consumer,
    bootstrap_server: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Run consumers until SIGTERM or SIGINT; raise the error of the first that fails."""
    if not consumers:
        raise ConsumerError(
            "no consumer to run.", hint="Pass the functions decorated with @penstock.consumer."
        )
    asyncio.run(_run_all(consumers, bootstrap_server, settings))


async def _run_all(
    consumers: tuple[Consumer, ...],
    bootstrap_server: str | None,
    settings: Mapping[str, str] | None,
) -> None:
    errors: list[Exception] = []

    def stop_all() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)  # the second one ends at once
        for one in consumers:
            one.stop()

    async def run_one(one: Consumer) -> None:
        try:
            await one.run(bootstrap_server=bootstrap_server, settings=settings)
        except Exception as error:  # noqa: BLE001 (raised below, after the others have stopped)
            errors.append(error)
            stop_all()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_all)
    async with asyncio.TaskGroup() as tasks:
        for one in consumers:
            tasks.create_task(run_one(one))
    if errors:
        raise errors[0]
