"""A bridge between MQTT and Penstock: Mosquitto in front of the devices, records behind.

    python mqtt_bridge.py bridge.toml

Guarantees: Mosquitto gets the PUBACK of a message when its record is on disk, and the offset of a
record is committed when Mosquitto sent its PUBACK. So nothing is lost when the bridge, Mosquitto or
the broker ends between both, and messages in flight are repeated: at least once, in each direction.
In flight are at most `mqtt.in_flight` messages for each route.

A lost connection is opened again, on both sides: unacknowledged messages come again. A
refusal that would repeat (access rules, a client id in use) ends the bridge with the exit code 1,
and nothing is acknowledged. It is NOT a broker: devices connect to Mosquitto.
"""

import argparse
import asyncio
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from bridge_settings import BridgeSettings, SettingsError, load, password, tls
from bridge_settings import Penstock as PenstockSettings
from mqtt_link import SERVER_CODES_TEMPORARY, Delivery, LinkError, MqttLink, RefusedError
from mqtt_mapping import (
    DownRoute,
    headers_of,
    is_answered,
    properties_of,
    route_of,
    topic_of,
)
from paho.mqtt.reasoncodes import ReasonCode

from penstock.client.push import (
    PushClient,
    PushClosedError,
    PushRecord,
    PushRequestError,
    PushSubscription,
    open_push,
)
from penstock.core.errors import BrokerUnreachableError
from penstock.protocol.push.payloads import Credentials

DELAY_SECONDS_MIN: Final = 0.2
DELAY_SECONDS_MAX: Final = 5.0
HEALTHY_SECONDS: Final = 2.0
"""After this time the next failure is a new one: its delay is the shortest."""
WRONG_FRAME: Final = "INVALID_REQUEST"
"""The code of a session that ended because of a frame of the bridge."""
TEMPORARY: Final = (LinkError, PushClosedError, BrokerUnreachableError)

log = logging.getLogger("mqtt_bridge")


async def connect_to_penstock(settings: PenstockSettings) -> PushClient:
    """Open a push session; raise `BrokerUnreachableError`."""
    credentials = None
    if settings.user:
        credentials = Credentials(user=settings.user, password=password(settings.password_file))
    return await open_push(
        settings.host,
        settings.port,
        socket_path=settings.socket_path or None,
        tls=tls(settings.ca_file),
        credentials=credentials,
    )


# --- Up: messages become records ---


class Up:
    """One connection of both sides; all messages go through it."""

    def __init__(self, settings: BridgeSettings, push: PushClient) -> None:
        self._settings = settings
        self._push = push
        self._group = asyncio.TaskGroup()
        self._in_flight: set[Delivery] = set()
        self._link = MqttLink(
            settings.mqtt, "up", settings.mqtt.session_seconds, self._start_storing
        )

    async def run(self) -> None:
        """Store messages until a side fails."""
        settings = self._settings
        for topic in sorted({route.topic for route in settings.up}):
            await self._push.open_topic(topic)  # publishes then leave in the order of messages
        try:
            async with self._group as group:
                await self._link.connect()
                group.create_task(self._link.wait_ended())
                group.create_task(self._wait_closed())
                await self._link.subscribe(route.filter for route in settings.up)
                kind = "resumed" if self._link.has_session else "new"
                print(f"up is ready: {len(settings.up)} routes, {kind} session", flush=True)
        finally:
            await self._link.close()

    async def _wait_closed(self) -> None:
        """Wait for the end of the push session; raise its reason."""
        raise self._reason(await self._push.wait_closed())

    def _reason(self, error: PushClosedError) -> Exception:
        """Return the error to raise: a message that is too large ends the session."""
        if error.code != WRONG_FRAME or not self._in_flight:
            return error
        largest = max((one.message for one in self._in_flight), key=lambda one: len(one.payload))
        return RefusedError(
            f"Penstock refused a message: {error}. The largest message in flight has "
            f"{len(largest.payload):,} bytes and came to '{largest.topic}'. It stays in Mosquitto; "
            "raise max.message.bytes of the topic, and keep max_packet_size of Mosquitto below it"
        )

    def _start_storing(self, delivery: Delivery) -> None:
        storing = self._store(delivery)
        try:
            self._group.create_task(storing)
        except RuntimeError:  # a side failed and the group ends: Mosquitto sends the message again
            storing.close()

    async def _store(self, delivery: Delivery) -> None:
        message = delivery.message
        route = route_of(message.topic, self._settings.up)
        if route is None:
            log.warning(
                "no route for a message to '%s': it is acknowledged without a record. The session "
                "has a subscription of earlier settings; choose a new mqtt.client_id",
                message.topic,
            )
            delivery.acknowledge()
            return
        self._in_flight.add(delivery)
        try:
            placed = await self._push.publish(
                route.topic,
                message.payload,
                key=message.topic.encode(),
                headers=headers_of(message),
            )
        except PushClosedError as error:
            raise self._reason(error) from error
        except PushRequestError as error:
            if error.is_retriable:
                raise
            raise RefusedError(
                f"Penstock refused a message of {len(message.payload):,} bytes to "
                f"'{message.topic}' for the topic '{route.topic}': {error}. It stays in Mosquitto"
            ) from error
        self._in_flight.remove(delivery)
        delivery.acknowledge()
        answer_to = message.response_topic
        if answer_to is not None and is_answered(answer_to, self._settings.mqtt.receipts):
            receipt = {"topic": placed.topic, "partition": placed.partition}
            receipt["offset"] = placed.offset
            self._link.send_receipt(answer_to, json.dumps(receipt).encode(), message.correlation)


async def carry_up(settings: BridgeSettings) -> None:
    """Connect both sides and store messages until one of them fails."""
    async with await connect_to_penstock(settings.penstock) as push:
        await Up(settings, push).run()


# --- Down: records become messages ---


class Down:
    """One connection of both sides, for one route."""

    def __init__(
        self, route: DownRoute, number: int, settings: BridgeSettings, push: PushClient
    ) -> None:
        self._route, self._settings, self._push = route, settings, push
        self._link = MqttLink(settings.mqtt, f"down-{number}")
        self._sent: asyncio.Queue[tuple[PushRecord, asyncio.Future[ReasonCode] | None]]
        self._sent = asyncio.Queue()
        """In the order of the subscription; bounded by its credit."""

    async def run(self) -> None:
        """Publish records until a side fails."""
        subscription = await self._push.subscribe(
            self._route.topic,
            group=self._settings.penstock.group,
            reset="earliest",
            credit=self._settings.mqtt.in_flight,
        )
        if subscription.elsewhere:
            raise RefusedError(
                f"other brokers lead partitions of '{self._route.topic}': use a topic of which "
                "one broker leads all partitions"
            )
        try:
            await self._link.connect()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._link.wait_ended())
                group.create_task(self._settle(subscription))
                print(f"down is ready: {self._route.topic}", flush=True)
                async for record in subscription:
                    self._sent.put_nowait((record, await self._publish(record)))
        finally:
            await self._link.close()

    async def _publish(self, record: PushRecord) -> asyncio.Future[ReasonCode] | None:
        """Publish a record; return the future of its PUBACK, None if MQTT has no such message."""
        content_type, user_properties = properties_of(record.headers)
        try:
            return await self._link.publish(
                topic_of(self._route.mqtt_topic, record.key),
                record.value or b"",
                retain=self._route.retain,
                content_type=content_type,
                user_properties=user_properties,
            )
        except ValueError as error:  # also `MappingError`
            log.error("%s is skipped: %s", name_of(record), error)
            return None

    async def _settle(self, subscription: PushSubscription) -> None:
        """Acknowledge records in their order: an acknowledgement includes all earlier records."""
        while True:
            record, answer = await self._sent.get()
            if answer is not None:
                code = await answer
                if code.is_failure:
                    kind = LinkError if code.value in SERVER_CODES_TEMPORARY else RefusedError
                    raise kind(f"Mosquitto refused {name_of(record)}: {code}")
            subscription.acknowledge(record)


def name_of(record: PushRecord) -> str:
    """Return where a record is."""
    return f"the record at offset {record.offset} of {record.topic}-{record.partition}"


async def carry_down(route: DownRoute, number: int, settings: BridgeSettings) -> None:
    """Connect both sides and publish records until one of them fails."""
    async with await connect_to_penstock(settings.penstock) as push:
        await Down(route, number, settings, push).run()


# --- Both ---


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Return the errors of a group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one)
    else:
        yield error


def is_temporary(error: BaseException) -> bool:
    """Return whether a new connection may help."""
    if isinstance(error, PushRequestError):
        return error.is_retriable
    if isinstance(error, PushClosedError):
        return error.code != WRONG_FRAME
    return isinstance(error, TEMPORARY)


async def keep(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Repeat work that ends with a temporary error, with growing delays; raise other errors."""
    clock, delay = asyncio.get_running_loop().time, DELAY_SECONDS_MIN
    while True:
        begun = clock()
        try:
            await work()
        except (*TEMPORARY, PushRequestError, ExceptionGroup) as error:
            found = list(leaves(error))
            if not all(is_temporary(one) for one in found):
                raise
            if clock() - begun > HEALTHY_SECONDS:
                delay = DELAY_SECONDS_MIN
            log.warning("%s: %s; again in %.1f s", name, found[0], delay)
        await asyncio.sleep(delay)
        delay = min(2 * delay, DELAY_SECONDS_MAX)


async def run(settings: BridgeSettings) -> None:
    """Run all routes until SIGTERM or SIGINT."""
    task = asyncio.current_task()
    assert task is not None
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, task.cancel)
    async with asyncio.TaskGroup() as group:
        if settings.up:
            group.create_task(keep("up", lambda: carry_up(settings)))
        for number, route in enumerate(settings.down):

            async def work(route: DownRoute = route, number: int = number) -> None:
                await carry_down(route, number, settings)

            group.create_task(keep(f"down {route.topic}", work))


def main() -> int:
    """Run the bridge; return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("settings", type=Path, help="the TOML file")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(run(load(parser.parse_args().settings)))
    except SettingsError as error:
        print(f"mqtt_bridge: {error}", file=sys.stderr)
        return 2
    except asyncio.CancelledError:
        return 0
    except ExceptionGroup as group:
        for text in dict.fromkeys(str(error) for error in leaves(group)):
            print(f"mqtt_bridge: {text}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
