"""A process that floods a listener with logins that never come to a good end.

    python -m tests.bad_input.login_flood PORT KIND RATE SECONDS

opens RATE connections a second for SECONDS, each with one attempt of KIND (a key of `ATTEMPTS`),
and keeps each one until the broker closes it, at most `HOLD_SECONDS`. It prints one line of JSON at
the end: the number of connections by their outcome. It is a process of its own, so that its work
does not delay the well-behaved client whose latency a test measures.
"""

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.bad_input.wire import well_formed
from tests.oracle.running_broker import HOST

FLOOD_HOST: Final = "127.0.0.9"
"""The flood has an address of its own: failed logins of an address delay its good ones."""
HOLD_SECONDS: Final = 20.0
LARGE_BYTES: Final = 500_000
CLOSED: Final = "closed by the broker"
HELD: Final = "still open"
LOST: Final = "reset"


def handshake(mechanism: str) -> bytes:
    return well_formed(SaslHandshakeRequest(mechanism=mechanism), 1)


def token(data: bytes) -> bytes:
    return well_formed(SaslAuthenticateRequest(auth_bytes=data), 2)


Attempt = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def wrong_password(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """PLAIN: the broker has to hash."""
    writer.write(handshake("PLAIN") + token(b"\0alice\0wrong"))


async def wrong_proof(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """SCRAM, until the broker refuses the proof."""
    writer.write(handshake("SCRAM-SHA-256") + token(b"n,,n=alice,r=flood"))
    await frame(reader)
    challenge = await frame(reader)
    nonce = challenge[challenge.index(b"r=flood") :].partition(b",")[0]
    writer.write(token(b"c=biws," + nonce + b",p=" + b"A" * 43 + b"="))


async def nothing(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    """A connection, and then silence."""


async def half_a_handshake(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(handshake("PLAIN")[:-3])


async def only_a_handshake(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(handshake("SCRAM-SHA-512"))


async def unfinished(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All but the last byte of a large token."""
    writer.write(handshake("PLAIN") + token(bytes(LARGE_BYTES))[:-1])


async def announced(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The first bytes of a large token."""
    writer.write(handshake("PLAIN") + token(bytes(LARGE_BYTES))[:30])


async def refused(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A large token that is none."""
    writer.write(handshake("PLAIN") + token(bytes(LARGE_BYTES)))


ATTEMPTS: Final[dict[str, Attempt]] = {
    attempt.__name__: attempt
    for attempt in (
        wrong_password,
        wrong_proof,
        nothing,
        half_a_handshake,
        only_a_handshake,
        unfinished,
        announced,
        refused,
    )
}


async def frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4))
    return await reader.readexactly(size)


async def attack(port: int, attempt: Attempt, outcomes: Counter[str]) -> None:
    """One connection, until the broker closes it."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port, local_addr=(FLOOD_HOST, 0))
    except OSError:
        outcomes[LOST] += 1
        return
    outcome = CLOSED
    try:
        async with asyncio.timeout(HOLD_SECONDS):
            await attempt(reader, writer)
            await reader.read()
    except TimeoutError:
        outcome = HELD
    except (OSError, asyncio.IncompleteReadError):
        outcome = LOST
    outcomes[outcome] += 1
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def flood(port: int, kind: str, rate: int, seconds: float) -> Counter[str]:
    """All attempts, at their times however slow the broker is."""
    outcomes: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begun + number / rate - loop.time()))
            tasks.create_task(attack(port, ATTEMPTS[kind], outcomes))
    return outcomes


if __name__ == "__main__":
    chosen_port, chosen_kind, chosen_rate, chosen_seconds = sys.argv[1:]
    found = asyncio.run(
        flood(int(chosen_port), chosen_kind, int(chosen_rate), float(chosen_seconds))
    )
    print(json.dumps(found))
