"""Pipes over HTTP: list, create and end them, pause, resume, promote and restore.

They belong to one broker and not to Kafka's protocol, so they are carried out on the broker itself
(`admin.ports.PipeDesk`). Reading asks for DESCRIBE on the cluster, each change for ALTER.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from penstock.admin.model import Answer
from penstock.admin.operation import Asked, Operation
from penstock.admin.pipe_models import (
    ChangedTopics,
    ChosenTopics,
    NewPipe,
    NewStart,
    PipeDetail,
    PipeEntry,
    PipeList,
    PipePath,
)
from penstock.admin.ports import Caller, PipeDesk
from penstock.admin.problems import RefusedError, refused
from penstock.client.cluster import Cluster
from penstock.core.errors import PenstockError, StoreError, UnknownTopicOrPartitionError
from penstock.security.acls import values

TAG: Final = "pipes"

Call = Callable[[PipeDesk, Asked], Awaitable[Answer | None]]


def guarded(
    permission: values.Operation, call: Call
) -> Callable[[PipeDesk, Caller, Asked], Awaitable[Answer | None]]:
    """Return the call with its permission checked, and its errors as problems."""

    async def guarded(desk: PipeDesk, caller: Caller, asked: Asked) -> Answer | None:
        if not desk.allows(caller, permission):
            name = permission.name.lower()
            raise refused(
                403,
                "Not allowed",
                f"{caller.principal} may not {name} the cluster.",
                f"Allow it: `penstock acl add --principal {caller.principal} --operation {name} "
                "--cluster`.",
            )
        try:
            return await call(desk, asked)
        except (RefusedError, StoreError):
            raise
        except UnknownTopicOrPartitionError as error:
            remedy = error.hint or "GET /api/v1/pipes lists the pipes."
            raise refused(404, "Not found", str(error), remedy) from error
        except PenstockError as error:
            raise refused(422, "Refused", str(error), error.hint or None) from error

    return guarded


async def _list(desk: PipeDesk, _asked: Asked) -> PipeList:
    return PipeList(pipes=list(desk.pipes()))


async def _show(desk: PipeDesk, asked: Asked) -> PipeDetail:
    return desk.pipe(asked.path_as(PipePath).pipe)


async def _create(desk: PipeDesk, asked: Asked) -> PipeEntry:
    return desk.create(asked.body_as(NewPipe))


async def _remove(desk: PipeDesk, asked: Asked) -> None:
    desk.remove(asked.path_as(PipePath).pipe)


async def _pause(desk: PipeDesk, asked: Asked) -> None:
    desk.pause(asked.path_as(PipePath).pipe)


async def _resume(desk: PipeDesk, asked: Asked) -> None:
    desk.resume(asked.path_as(PipePath).pipe)


async def _promote(desk: PipeDesk, asked: Asked) -> ChangedTopics:
    chosen = asked.body_as(ChosenTopics).topics
    return ChangedTopics(topics=await desk.promote(asked.path_as(PipePath).pipe, chosen))


async def _restore(desk: PipeDesk, asked: Asked) -> ChangedTopics:
    chosen = asked.body_as(ChosenTopics).topics
    return ChangedTopics(topics=await desk.restore(asked.path_as(PipePath).pipe, chosen))


async def _reset(desk: PipeDesk, asked: Asked) -> ChangedTopics:
    wanted = asked.body_as(NewStart)
    name = asked.path_as(PipePath).pipe
    return ChangedTopics(topics=desk.reset(name, wanted.topics, wanted.start))


def by_wire(cluster: Cluster, asked: Asked) -> NoReturn:
    """Never called: the broker itself carries out these operations."""
    raise AssertionError(f"Kafka's protocol has no pipes: {cluster}, {asked}")


_DESCRIBE: Final = values.Operation.DESCRIBE
_ALTER: Final = values.Operation.ALTER

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/pipes",
        name="list_pipes",
        summary="List pipes",
        description="Needs DESCRIBE on the cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(_DESCRIBE, _list),
        answer=PipeList,
    ),
    Operation(
        method="POST",
        path="/pipes",
        name="create_pipe",
        summary="Run a pipe until the broker stops",
        description="The same pipe again has no effect. Needs ALTER on the cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(_ALTER, _create),
        answer=PipeEntry,
        body_model=NewPipe,
    ),
    Operation(
        method="GET",
        path="/pipes/{pipe}",
        name="describe_pipe",
        summary="Show a pipe with its partitions",
        description="Needs DESCRIBE on the cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(_DESCRIBE, _show),
        answer=PipeDetail,
        path_model=PipePath,
    ),
    Operation(
        method="DELETE",
        path="/pipes/{pipe}",
        name="delete_pipe",
        summary="End a pipe that is not in the settings file",
        description="Its mirrors stay read-only. Needs ALTER on the cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(_ALTER, _remove),
        status=204,
        path_model=PipePath,
    ),
    Operation(
        method="POST",
        path="/pipes/{pipe}/pause",
        name="pause_pipe",
        summary="Pause a pipe",
        description="Until it is resumed, or the broker restarts. Needs ALTER on the cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(_ALTER, _pause),
        status=204,
        path_model=PipePath,
    ),
    Operation(
        method="POST",
        path="/pipes/{pipe}/resume",
        name="resume_pipe",
        summary="Resume a pipe",
        description="Needs ALTER on the cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(_ALTER, _resume),
        status=204,
        path_model=PipePath,
    ),
    Operation(
        method="POST",
        path="/pipes/{pipe}/promote",
        name="promote_mirrors",
        summary="Let clients write the mirrors of a pipe",
        description="The pipe does not write them any more. Needs ALTER on the cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(_ALTER, _promote),
        answer=ChangedTopics,
        path_model=PipePath,
        body_model=ChosenTopics,
    ),
    Operation(
        method="POST",
        path="/pipes/{pipe}/restore",
        name="restore_mirrors",
        summary="Let a pipe write promoted topics again",
        description="Records that the parent does not have are removed. Needs ALTER on the "
        "cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(_ALTER, _restore),
        answer=ChangedTopics,
        path_model=PipePath,
        body_model=ChosenTopics,
    ),
    Operation(
        method="POST",
        path="/pipes/{pipe}/reset",
        name="reset_up_pipe",
        summary="Choose where an up pipe sends topics from",
        description="With `earliest` the parent gets records again that it has. Needs ALTER on the "
        "cluster.",
        tag=TAG,
        call=by_wire,
        on_pipes=guarded(_ALTER, _reset),
        answer=ChangedTopics,
        path_model=PipePath,
        body_model=NewStart,
    ),
)
