"""The cost of a request: charged once, the longest wait counts, parked time is free."""

import asyncio

import pytest

from penstock.broker.quotas.meter import MeteredWork, RequestMeter
from penstock.broker.quotas.quotas import Quotas
from penstock.cluster.quota_entities import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    entity_of,
)
from penstock.core.errors import ThrottledError
from penstock.core.limits import QUOTA_ENTITY_NAME_BYTES_MAX
from penstock.core.metrics import Registry

EVERYBODY = entity_of([("client-id", None)])


class ManualClock:
    """Moves only when the test sets it."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now_ms(self) -> int:
        raise AssertionError("quotas use no date")

    def monotonic(self) -> float:
        return self.seconds


def quotas_of(clock: ManualClock | None = None, **limits: float) -> Quotas:
    quotas = Quotas(clock or ManualClock())
    quotas.put(EVERYBODY, limits)
    return quotas


def test_nothing_is_active_while_nothing_is_set() -> None:
    quotas = Quotas(ManualClock())
    assert not quotas.is_active
    for name in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE):
        quotas.put(EVERYBODY, {name: 1.0})
        assert quotas.is_active
    quotas.put(EVERYBODY, {})
    assert not quotas.is_active
    quotas.put(entity_of([("ip", None)]), {CONNECTION_CREATION_RATE: 1.0})
    assert not quotas.is_active
    assert quotas.holds_connections
    quotas.put(entity_of([("ip", None)]), {})
    assert not quotas.holds_connections


def test_bytes_of_a_produce_are_charged_to_its_client() -> None:
    quotas = quotas_of(producer_byte_rate=100)
    meter = RequestMeter(quotas, "a")
    assert meter.charge_produce(1_100) == 1_000
    assert meter.settle() == 1_000
    assert meter.settle() == 1_000
    assert RequestMeter(quotas, "b").charge_produce(1_000) == 0
    assert RequestMeter(quotas, None).charge_produce(10**9) == 0


@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f600"])
def test_a_client_id_too_long_for_a_quota_is_remembered_by_a_digest(letter: str) -> None:
    quotas = quotas_of(producer_byte_rate=100)
    longest = letter * (QUOTA_ENTITY_NAME_BYTES_MAX // len(letter.encode()))
    one, other = longest + "a", longest + "b"
    assert RequestMeter(quotas, one).charge_produce(1_100) == 1_000
    # Each for itself, and the same one again is the same.
    assert RequestMeter(quotas, other).charge_produce(1_000) == 0
    assert RequestMeter(quotas, one).charge_produce(0) == 1_000
    assert all(len(name) < 100 for _, name in quotas.produce._ledger._entries)
    assert all(len(name) < 100 for _, name in quotas.produce.limits._known)
    RequestMeter(quotas, longest).charge_produce(1)
    assert ("", longest) in quotas.produce._ledger._entries


def test_a_fetch_that_waits_is_charged_for_no_bytes() -> None:
    quotas = quotas_of(consumer_byte_rate=100)
    assert RequestMeter(quotas, "a").settle_fetch(2_000) == 10_000
    assert RequestMeter(quotas, "a").settle_fetch(1_000) == 0
    assert RequestMeter(quotas, "a").settle_fetch(1) == 10


def test_a_fetch_brings_no_more_than_can_ever_pass() -> None:
    quotas = quotas_of(consumer_byte_rate=100)
    assert RequestMeter(quotas, "a").fetch_bytes_max() == 1_000
    assert RequestMeter(quotas, "").fetch_bytes_max() == 2**31 - 1
    assert RequestMeter(quotas_of(consumer_byte_rate=1e15), "a").fetch_bytes_max() == 2**31 - 1


def test_time_is_charged_without_the_time_that_a_request_is_parked() -> None:
    clock = ManualClock()
    quotas = quotas_of(clock, request_percentage=1.0)
    meter = RequestMeter(quotas, "a")
    clock.seconds += 0.1
    meter.end()
    clock.seconds += 50.0
    meter.begin()
    clock.seconds += 0.1
    # 20 % of a second is twice the limit of ten windows; no client waits longer than a window.
    assert meter.settle() == 1_000
    quiet = RequestMeter(quotas_of(clock, request_percentage=2.0), "a")
    clock.seconds += 0.1
    quiet.end()
    clock.seconds += 50.0
    assert quiet.settle() == 0


def test_what_is_written_afterwards_is_charged_to_the_next() -> None:
    clock = ManualClock()
    quotas = quotas_of(clock, request_percentage=1.0)
    meter = RequestMeter(quotas, "a")
    assert meter.settle() == 0
    clock.seconds += 0.2
    meter.finish()
    assert RequestMeter(quotas, "a").settle() == 1_000


def test_who_wants_no_answer_is_exempt_from_time_and_not_from_bytes() -> None:
    clock = ManualClock()
    quotas = quotas_of(clock, request_percentage=1.0, producer_byte_rate=100)
    meter = RequestMeter(quotas, "a")
    clock.seconds += 5.0
    assert meter.charge_produce(1_001) == 10
    assert meter.settle(is_exempt=True) == 10
    clock.seconds += 5.0
    meter.finish()
    clock.seconds += 0.01
    assert RequestMeter(quotas, "a").settle() == 0


def test_the_longest_wait_counts_and_is_counted() -> None:
    clock = ManualClock()
    quotas = quotas_of(clock, request_percentage=1.0, producer_byte_rate=100)
    metrics = Registry()
    quotas.register(metrics)
    meter = RequestMeter(quotas, "a")
    clock.seconds += 5.0
    meter.charge_produce(1_001)
    assert meter.settle() == 1_000
    told = metrics.snapshot()
    assert told['throttled_total{quota="request_percentage"}'] == 1
    assert told['throttled_total{quota="producer_byte_rate"}'] == 0
    assert told['throttle_seconds_total{quota="request_percentage"}'] == 1.0
    assert told["quota_entities"] == 1


def test_changes_are_refused_when_the_bucket_is_overdrawn() -> None:
    clock = ManualClock()
    quotas = quotas_of(clock, controller_mutation_rate=1.0)
    meter = RequestMeter(quotas, "a")
    meter.charge_mutations(11, strict=True)
    meter.charge_mutations(2, strict=True)
    with pytest.raises(ThrottledError, match="quota has been exceeded"):
        meter.charge_mutations(1, strict=True)
    clock.seconds += 0.5
    assert meter.settle() == 1_500


def test_changes_of_an_older_client_are_done_and_waited_for() -> None:
    quotas = quotas_of(controller_mutation_rate=1.0)
    meter = RequestMeter(quotas, "a")
    meter.charge_mutations(20, strict=False)
    assert meter.settle() == 9_000
    with pytest.raises(ThrottledError):
        RequestMeter(quotas, "a").charge_mutations(1, strict=True)


def test_a_connection_too_many_is_held_and_not_counted() -> None:
    quotas = Quotas(ManualClock())
    quotas.put(entity_of([("ip", "127.0.0.1")]), {CONNECTION_CREATION_RATE: 1.0})
    quotas.put(entity_of([("ip", None)]), {CONNECTION_CREATION_RATE: 2.0})
    assert [quotas.hold_ms("127.0.0.1") for _ in range(12)] == [0] * 10 + [1_000] * 2
    assert [quotas.hold_ms("127.0.0.2") for _ in range(21)] == [0] * 20 + [500]


@pytest.mark.parametrize("address", ["::1", "0:0:0:0:0:0:0:1"])
def test_an_address_may_be_written_in_any_way(address: str) -> None:
    quotas = Quotas(ManualClock())
    quotas.put(entity_of([("ip", address)]), {CONNECTION_CREATION_RATE: 1.0})
    assert [quotas.hold_ms("::1") for _ in range(11)][-1] == 1_000
    assert quotas.hold_ms("fe80::1%eth0") == 0


def test_addresses_of_one_client_share_the_default_and_keep_their_own() -> None:
    quotas = Quotas(ManualClock())
    quotas.put(entity_of([("ip", "10.0.0.1")]), {CONNECTION_CREATION_RATE: 1.0})
    quotas.put(entity_of([("ip", "2001:db8::ff")]), {CONNECTION_CREATION_RATE: 1.0})
    quotas.put(entity_of([("ip", None)]), {CONNECTION_CREATION_RATE: 2.0})
    found = [quotas.hold_ms(f"2001:db8::{number:x}") for number in range(21)]
    assert found == [0] * 20 + [500], "one /64 is one client"
    assert quotas.hold_ms("2001:db8:0:1::1") == 0
    assert quotas.hold_ms("2001:db8::ff") == 0, "it has a quota of its own"
    mapped = [quotas.hold_ms(one) for one in ("::ffff:10.0.0.1", "10.0.0.1") * 5]
    assert (mapped, quotas.hold_ms("::ffff:10.0.0.1")) == ([0] * 10, 1_000)


def test_what_was_used_stays_when_the_limit_changes() -> None:
    quotas = quotas_of(producer_byte_rate=100)
    RequestMeter(quotas, "a").charge_produce(1_000)
    quotas.put(EVERYBODY, {PRODUCER_BYTE_RATE: 50.0})
    assert RequestMeter(quotas, "a").charge_produce(0) == 10_000
    quotas.put(EVERYBODY, {PRODUCER_BYTE_RATE: 50.0, CONTROLLER_MUTATION_RATE: 1.0})
    quotas.put(EVERYBODY, {CONTROLLER_MUTATION_RATE: 1.0})
    assert RequestMeter(quotas, "a").charge_produce(10**9) == 0


def test_each_step_of_a_coroutine_is_metered_and_what_it_waits_for_is_not() -> None:
    clock = ManualClock()
    meter = RequestMeter(quotas_of(clock, request_percentage=1.0), "a")

    async def work() -> str:
        clock.seconds += 0.05
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0.001)
        except TimeoutError:
            clock.seconds += 0.1
        return "done"

    async def main() -> str:
        meter.end()
        answer = await MeteredWork(work(), meter)
        clock.seconds += 30.0
        assert isinstance(answer, str)
        return answer

    assert asyncio.run(main()) == "done"
    assert abs(meter._seconds - 0.15) < 1e-6
    assert meter.settle() == 1_000


def test_an_error_of_a_coroutine_is_its_own() -> None:
    meter = RequestMeter(quotas_of(request_percentage=1.0), "a")

    async def work() -> None:
        await asyncio.sleep(0)
        raise KeyError("mine")

    async def main() -> None:
        await MeteredWork(work(), meter)

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(main())
