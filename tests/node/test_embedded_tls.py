"""A broker in a program with the keywords for TLS: clients need TLS, and a certificate if asked."""

import asyncio
import ssl
from pathlib import Path

import pytest

from penstock.core.settings.config import BrokerConfig
from penstock.node.server import BrokerServer
from tests.client.certificates import issue, write

API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000007 ffff")


async def ask(server: BrokerServer, context: ssl.SSLContext | None) -> bytes:
    """Send ApiVersions; return the correlation id of the answer, empty at the end of the stream."""
    host, _, port = server.bootstrap_server.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        writer.write(API_VERSIONS)
        return (await reader.read(8))[4:]
    finally:
        writer.transport.abort()


def test_the_files_of_tls_encrypt_the_listener(tmp_path: Path) -> None:
    authority = issue("authority")
    broker = issue("broker", authority, hosts=["127.0.0.1"])
    client = issue("client", authority)
    files = {
        name: write(tmp_path / name, text)
        for name, text in {
            "ca.crt": authority.certificate_pem,
            "broker.crt": broker.certificate_pem,
            "broker.key": broker.key_pem(),
            "client.crt": client.certificate_pem,
            "client.key": client.key_pem(),
        }.items()
    }
    config = BrokerConfig(
        port=0,
        storage="memory",
        tls_cert=files["broker.crt"],
        tls_key=files["broker.key"],
        tls_ca=files["ca.crt"],
    )
    trusting = ssl.create_default_context(cafile=files["ca.crt"])
    known = ssl.create_default_context(cafile=files["ca.crt"])
    known.load_cert_chain(files["client.crt"], files["client.key"])

    async def conversation() -> None:
        async with BrokerServer(config) as server, asyncio.timeout(10):
            assert await ask(server, known) == bytes.fromhex("00000007")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await ask(server, trusting)
            assert await ask(server, None) != bytes.fromhex("00000007")

    asyncio.run(conversation())
