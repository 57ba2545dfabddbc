"""Status and readiness as answers, built from the broker's own state. No IO."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.admin.health import Facts, Verdict, judge
from penstock.admin.model import Answer
from penstock.admin.ports import BrokerView
from penstock.core.limit_use import LimitUse


class ReasonAnswer(Answer):
    """Why a broker is not healthy."""

    code: Annotated[str, Field(examples=["disk-low"])]
    level: Literal["Degraded", "Critical"]
    message: str
    remedy: str


class LimitAnswer(Answer):
    """The use of one limit."""

    name: Annotated[str, Field(examples=["connections"])]
    current: Annotated[
        int | float | None, Field(description="Null for a time limit: each client has its own.")
    ]
    limit: int | float
    unit: str
    refused: Annotated[
        int | None,
        Field(description="Refused, dropped or delayed since the start; null: not counted."),
    ]


class Alive(Answer):
    """The process runs and its event loop turns."""

    alive: Literal[True] = True


class Readiness(Answer):
    """Whether new clients can be sent here, and why not."""

    ready: bool
    health: Annotated[
        Literal["Healthy", "Degraded", "Critical"] | None,
        Field(description="Null for callers that may not describe the cluster."),
    ]
    reasons: Annotated[
        list[ReasonAnswer] | None,
        Field(description="Null for callers that may not describe the cluster."),
    ]

    def without_reasons(self) -> "Readiness":
        """Return the answer to a caller that may not see the state of the broker."""
        return Readiness(ready=self.ready, health=None, reasons=None)


class WorkerAnswer(Answer):
    """One worker of `penstock serve --workers`."""

    worker: int
    node_id: int
    condition: Annotated[str, Field(examples=["running"])]
    pid: Annotated[int | None, Field(description="Null while no process runs.")]
    restarts: Annotated[int, Field(description="Since the start of the supervisor.")]
    address: Annotated[
        str | None, Field(description="The advertised address; null until it answers.")
    ]
    admin: Annotated[str | None, Field(description="The URL of its admin port.")]


class Status(Answer):
    """The health and the identity of a broker."""

    health: Literal["Healthy", "Degraded", "Critical"]
    ready: bool
    reasons: list[ReasonAnswer]
    node_id: int
    cluster_id: Annotated[str | None, Field(description="Null until the metadata is loaded.")]
    version: str
    address: Annotated[str, Field(description="The advertised address, for clients.")]
    started_at_ms: int
    uptime_seconds: float
    limits: list[LimitAnswer]
    workers: Annotated[
        list[WorkerAnswer],
        Field(description="All workers of `penstock serve --workers`; else empty."),
    ]


def readiness(facts: Facts) -> Readiness:
    """Return the answer to a probe."""
    verdict = judge(facts)
    return Readiness(ready=verdict.is_ready, health=verdict.level.value, reasons=_reasons(verdict))


def status(view: BrokerView) -> Status:
    """Return the answer to an operator."""
    facts, identity = view.facts(), view.identity
    verdict = judge(facts)
    return Status(
        health=verdict.level.value,
        ready=verdict.is_ready,
        reasons=_reasons(verdict),
        node_id=identity.node_id,
        cluster_id=identity.cluster_id or None,
        version=identity.version,
        address=f"{identity.host}:{identity.port}",
        started_at_ms=identity.started_at_ms,
        uptime_seconds=round(view.uptime_seconds(), 3),
        limits=[_limit(one) for one in facts.limits],
        workers=[WorkerAnswer.model_validate(one._asdict()) for one in view.workers()],
    )


def _reasons(verdict: Verdict) -> list[ReasonAnswer]:
    return [
        ReasonAnswer.model_validate(
            {
                "code": one.code,
                "level": one.level.value,
                "message": one.message,
                "remedy": one.remedy,
            }
        )
        for one in verdict.reasons
    ]


def _limit(one: LimitUse) -> LimitAnswer:
    return LimitAnswer(
        name=one.name, current=one.current, limit=one.limit, unit=one.unit, refused=one.refused
    )
