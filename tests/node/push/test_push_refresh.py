"""Refreshes over push on a real broker: in the process, over TCP, and by an operator."""

import httpx

from penstock.client.push import PushReady, PushRecord, PushReset, PushSubscription
from penstock.core.settings.config import load_settings
from tests.node.push.push_stage import PLAIN_TEXT, connect, push_broker, run, take


async def refreshed(subscription: PushSubscription) -> tuple[PushReset, dict[bytes, bytes]]:
    """Follow a refresh as a client with a data set does; return the new data set at READY."""
    reset: PushReset | None = None
    rows: dict[bytes, bytes] = {}
    async for event in subscription.events():
        match event:
            case PushReset():
                reset, rows = event, {}
                subscription.answer(event)
            case PushRecord(key=key, value=value):
                assert key is not None
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
                subscription.acknowledge(event)
            case PushReady():
                assert reset is not None
                assert (event.refresh_id, event.offsets) == (reset.refresh_id, reset.offsets)
                subscription.answer(event)
                return reset, rows
    raise AssertionError("the session ended")


def test_a_client_asks_for_a_refresh_and_continues_live() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            for number in range(20):
                await client.publish("t", b"%d" % number, key=b"k%d" % (number % 3))
            await client.publish("t", None, key=b"k0")
            subscription = await client.subscribe(
                "t", group="g", start="latest", accepts_refresh=True
            )
            await client.refresh("t", group="g")
            reset, rows = await refreshed(subscription)
            assert (reset.offsets, reset.records) == ({0: 21}, 21)
            assert rows == {b"k1": b"19", b"k2": b"17"}
            await client.publish("t", b"live", key=b"k5")
            (record,) = await take(subscription, 1)
            assert record.value == b"live"

    run(test)


def test_a_client_that_crashes_before_ready_continues_its_old_data_set() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            async with await connect(broker) as client:
                for number in range(5):
                    await client.publish("t", b"%d" % number, key=b"k")
                subscription = await client.subscribe(
                    "t", group="g", start="earliest", accepts_refresh=True
                )
                await take(subscription, 5)
            client = await connect(broker)
            subscription = await client.subscribe("t", group="g", accepts_refresh=True)
            await client.refresh("t")
            seen = 0
            async for event in subscription.events():
                if isinstance(event, PushReset):
                    subscription.answer(event)
                elif isinstance(event, PushRecord):
                    subscription.acknowledge(event)
                    seen += 1
                else:
                    break
            assert seen == 5
            assert client._transport is not None
            client._transport.abort()
            async with await connect(broker) as again:
                await again.publish("t", b"next", key=b"k")
                subscription = await again.subscribe("t", group="g")
                assert [one.value for one in await take(subscription, 1)] == [b"next"]

    run(test)


def test_an_operator_refreshes_subscribers_and_others_reject_it() -> None:
    settings = load_settings(PLAIN_TEXT + "[admin]\nport = 0\n", {}, {}).settings

    async def test() -> None:
        from penstock import BrokerServer

        async with BrokerServer(settings) as broker:
            await broker.create_topic("t")
            async with await connect(broker) as client, await connect(broker) as plain:
                await client.publish("t", b"1", key=b"a")
                subscription = await client.subscribe("t", group="g", accepts_refresh=True)
                other = await plain.subscribe("t", group="h")
                await broker.wait_for_admin()
                url = f"http://127.0.0.1:{broker.admin_port}/api/v1/refreshes/t/send"
                async with httpx.AsyncClient() as operator:
                    wrong = await operator.post(url, json={"group": "unknown"})
                    assert wrong.json()["subscribers"] == 0
                    answer = await operator.post(url, json={})
                assert answer.json() == {"topic": "t", "subscribers": 2}
                assert (await refreshed(subscription))[1] == {b"a": b"1"}
                await client.publish("t", b"2", key=b"a")
                assert [one.value for one in await take(other, 1)] == [b"2"]

    run(test)
