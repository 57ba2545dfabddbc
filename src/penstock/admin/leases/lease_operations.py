"""Leases over HTTP: grant, list and release leases of sealed segments.

A lease links the files of sealed segments in the data directory, so that a job on a machine that
sees this directory reads them without the broker. It needs READ on the topic, as Fetch does. The
broker lists and releases the leases of a caller; those of other callers need DESCRIBE and ALTER on
the cluster.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from penstock.admin.model import Answer
from penstock.admin.models.lease_models import (
    GrantedLease,
    LeaseList,
    LeasePath,
    NewLease,
)
from penstock.admin.operation import API_PREFIX, Asked, Operation
from penstock.admin.pipes.pipe_operations import by_wire
from penstock.admin.ports import Caller, LeaseDesk
from penstock.admin.problems import RETRY_AFTER_SECONDS, RefusedError, refused
from penstock.core.errors import PenstockError, StorageError, UnknownTopicOrPartitionError

TAG: Final = "leases"

Call = Callable[[LeaseDesk, Caller, Asked], Awaitable[Answer | None]]


def _answered(call: Call) -> Call:
    """Return the call with its errors as problems."""

    async def answered(desk: LeaseDesk, caller: Caller, asked: Asked) -> Answer | None:
        try:
            return await call(desk, caller, asked)
        except RefusedError:
            raise
        except UnknownTopicOrPartitionError as error:
            raise refused(404, "Not found", str(error), error.hint or None) from error
        except StorageError as error:
            raise _refusal(desk, error) from error

    return answered


def _refusal(desk: LeaseDesk, error: PenstockError) -> RefusedError:
    if desk.is_temporary(error):
        return refused(
            503,
            "Not now",
            str(error),
            error.hint or None,
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )
    return refused(422, "Refused", str(error), error.hint or None)


async def _grant(desk: LeaseDesk, caller: Caller, asked: Asked) -> GrantedLease:
    return await desk.grant(caller, asked.body_as(NewLease))


async def _list(desk: LeaseDesk, caller: Caller, _asked: Asked) -> LeaseList:
    return LeaseList(leases=list(desk.leases(caller)))


async def _release(desk: LeaseDesk, caller: Caller, asked: Asked) -> None:
    lease = asked.path_as(LeasePath).lease
    if not await desk.release(caller, lease):
        raise refused(
            404,
            "Not found",
            f"There is no lease {lease}, or it belongs to another caller.",
            f"GET {API_PREFIX}/leases lists the leases.",
        )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/leases",
        name="list_leases",
        summary="List leases of sealed segments",
        description="Those of the caller; with DESCRIBE on the cluster all of them.",
        tag=TAG,
        call=by_wire,
        on_leases=_answered(_list),
        answer=LeaseList,
    ),
    Operation(
        method="POST",
        path="/leases",
        name="grant_lease",
        summary="Lease sealed segments of a topic",
        description="Links their files, so that a job on a machine that sees the data directory "
        "reads them without the broker. Needs READ on the topic.",
        tag=TAG,
        call=by_wire,
        on_leases=_answered(_grant),
        answer=GrantedLease,
        body_model=NewLease,
        status=201,
    ),
    Operation(
        method="DELETE",
        path="/leases/{lease}",
        name="release_lease",
        summary="Release a lease",
        description="Of the caller; with ALTER on the cluster any lease.",
        tag=TAG,
        call=by_wire,
        on_leases=_answered(_release),
        status=204,
        path_model=LeasePath,
    ),
)
