"""Refreshes over HTTP: install a snapshot in a mirror, and refresh the push subscribers of a topic.

An installation may take longer than a request: one request begins it, another one shows its state.
Each change needs ALTER on the cluster, as for pipes.
"""

from typing import Final

from penstock.admin.operation import Asked, Operation
from penstock.admin.pipe_models import (
    NewRefresh,
    RefreshEntry,
    RefreshPath,
    SentRefresh,
    WantedSend,
)
from penstock.admin.pipes.pipe_operations import by_wire, guarded
from penstock.admin.ports import PipeDesk
from penstock.security.acls import values

TAG: Final = "refreshes"


async def _show(desk: PipeDesk, asked: Asked) -> RefreshEntry:
    return desk.refreshes.state(asked.path_as(RefreshPath).topic)


async def _install(desk: PipeDesk, asked: Asked) -> RefreshEntry:
    return desk.refreshes.begin(asked.path_as(RefreshPath).topic, asked.body_as(NewRefresh))


async def _send(desk: PipeDesk, asked: Asked) -> SentRefresh:
    group = asked.body_as(WantedSend).group
    return desk.refreshes.send(asked.path_as(RefreshPath).topic, group)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/refreshes/{topic}",
        name="describe_refresh",
        summary="Show the installation of a snapshot",
        description="Needs DESCRIBE on the cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(values.Operation.DESCRIBE, _show),
        answer=RefreshEntry,
        path_model=RefreshPath,
    ),
    Operation(
        method="POST",
        path="/refreshes/{topic}",
        name="install_snapshot",
        summary="Install a snapshot in place of a mirror",
        description="The answer is the state at its begin. Needs ALTER on the cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(values.Operation.ALTER, _install),
        answer=RefreshEntry,
        path_model=RefreshPath,
        body_model=NewRefresh,
    ),
    Operation(
        method="POST",
        path="/refreshes/{topic}/send",
        name="send_refresh",
        summary="Refresh the push subscribers of a topic",
        description="Needs ALTER on the cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(values.Operation.ALTER, _send),
        answer=SentRefresh,
        path_model=RefreshPath,
        body_model=WantedSend,
    ),
)
