"""Up pipes whose calls to a parent fail: each call in turn is not sent, or loses its answer."""

from itertools import count

import pytest

from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call
from penstock.client.transport.connection import AsyncConnection, connect
from penstock.core.errors import AnswerLostError
from penstock.edge.pipes import back_off, kafka_upstream
from penstock.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    offset_fetch,
    produce,
    txn_offset_commit,
)
from penstock.testing import Broker
from tests.node.pipes.pipe_scene import TOPIC, Operator, child_settings, up_pipe

STEPS = {
    "begin": init_producer_id.InitProducerIdRequest,
    "positions": offset_fetch.OffsetFetchRequest,
    "join": add_partitions_to_txn.AddPartitionsToTxnRequest,
    "join the group": add_offsets_to_txn.AddOffsetsToTxnRequest,
    "append": produce.ProduceRequest,
    "commit the position": txn_offset_commit.TxnOffsetCommitRequest,
    "end": end_txn.EndTxnRequest,
}


class Fault:
    """Fails the calls of one step, some times."""

    def __init__(self) -> None:
        self.step: type | None = None
        self.is_sent = False
        self.left = 0
        self.is_old = False

    async def connect(self, address: Address, **options: object) -> "Failing":
        return Failing(await connect(address, **options), self)  # type: ignore[arg-type]


class Failing:
    """A connection that loses calls or answers."""

    def __init__(self, inner: AsyncConnection, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    @property
    def is_open(self) -> bool:
        return self._inner.is_open

    async def carry(self, call: Call[object]) -> object:
        fault = self._fault
        is_hit = fault.left > 0 and isinstance(call.request, fault.step or ())
        if is_hit:
            fault.left -= 1
        if is_hit and not fault.is_sent:
            await self._inner.close()
            raise AnswerLostError("not sent")
        answer = await self._inner.carry(call)
        if is_hit:
            await self._inner.close()
            raise AnswerLostError("the answer was lost")
        return answer

    async def close(self) -> None:
        await self._inner.close()


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    found = Fault()
    monkeypatch.setattr(kafka_upstream, "connect", found.connect)
    # Each loss is a loss for the pipe: the client's own retries are tested elsewhere.
    monkeypatch.setattr(kafka_upstream, "CALL_SECONDS_MAX", 0.04)
    monkeypatch.setattr(kafka_upstream, "ANSWER_SECONDS_MAX", 5.0)
    monkeypatch.setattr(back_off, "PAUSE_SECONDS_MIN", 0.01)
    return found


@pytest.mark.parametrize("version", ["2", "0"])
def test_each_record_arrives_once_whichever_call_or_answer_is_lost(
    fault: Fault, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    if version == "0":
        monkeypatch.setattr(kafka_upstream, "VERSION_2", 99)
        monkeypatch.setattr(kafka_upstream, "FENCED_SECONDS_MAX", -1.0)
    numbers, wanted = count(), list[str]()
    hits = 0
    with (
        Broker() as parent,
        Broker(child_settings([up_pipe(parent.bootstrap_server)])) as child,
    ):
        child.create_topic(TOPIC)
        operator = Operator(child)
        operator.wait_in_step("up")
        for step in STEPS.values():
            for is_sent in (False, True):
                fault.step, fault.is_sent, fault.left = step, is_sent, 1
                operator.ask("POST", "/up/pause")
                some = [str(next(numbers)), str(next(numbers)), "x" * 5_000]
                for one in some:
                    child.produce(TOPIC, one)
                wanted += some
                operator.ask("POST", "/up/resume")
                assert [one.value for one in parent.records(TOPIC, count=len(wanted))] == wanted
                hits += fault.left == 0
        operator.wait_in_step("up")
        assert [one.value for one in parent.records(TOPIC, count=len(wanted))] == wanted
    assert hits == 2 * (len(STEPS) if version == "0" else len(STEPS) - 2)
