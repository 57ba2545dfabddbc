"""The registry on a real socket: restarts, TLS, certificates as keys, hostile servers and peers."""

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.registry.registry_access import TREE_BYTES_MAX
from penstock.core.errors import ConfigError
from penstock.edge.registry.documents import TopologyDocument, TreeDocument
from penstock.edge.registry.registry_errors import RegistryStoreError, RegistryUnreachableError
from penstock.edge.registry.registry_http import RegistryHttp, url_problem
from penstock.edge.registry.topology_file import read_or_create_token, read_token
from penstock.node.registry.registry_process import RegistryOptions, RegistryServer
from tests.broker.tls.tls_stage import client_context, identities

BODY = b'{"addresses": {"kafka": "store:9092"}, "boot": "b007b007b007b007"}'
NODE = "/registry/v1/nodes/store"
KEY = "k" * 40


def options(tmp_path: Path) -> RegistryOptions:
    return RegistryOptions(data_dir=str(tmp_path / "registry"), port=0)


def joining(server: RegistryServer) -> dict[str, str]:
    token = read_token(server.join_token_file)
    return {"Authorization": f"Bearer {KEY}", "Penstock-Join-Token": token}


async def register(
    server: RegistryServer, context: ssl.SSLContext | None = None, *, has_token: bool = True
) -> int:
    headers = joining(server)
    if not has_token:
        del headers["Authorization"]
    url = server.url.replace("127.0.0.1", "localhost") if context else server.url
    answer = await RegistryHttp(url, context).call("PUT", NODE, headers, BODY)
    return answer.status


async def tree(server: RegistryServer) -> TreeDocument:
    headers = {"Authorization": f"Bearer {read_token(server.operator_token_file)}"}
    http = RegistryHttp(server.url, answer_bytes_max=TREE_BYTES_MAX)
    answer = await http.call("GET", "/registry/v1/tree", headers)
    return TreeDocument.model_validate_json(answer.body)


def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    async def run() -> None:
        async with RegistryServer(options(tmp_path)) as server:
            assert await register(server) == 200
            before = await tree(server)
        async with RegistryServer(options(tmp_path)) as server:
            after = await tree(server)
        assert [one.id for one in after.nodes] == ["store"]
        assert after.registry == before.registry
        assert after.revision > before.revision

    asyncio.run(run())


def test_two_registries_cannot_share_a_directory(tmp_path: Path) -> None:
    async def run() -> None:
        async with RegistryServer(options(tmp_path)):
            with pytest.raises(RegistryStoreError, match="locked"):
                async with RegistryServer(options(tmp_path)):
                    pass

    asyncio.run(run())


def test_a_port_in_use(tmp_path: Path) -> None:
    async def run() -> None:
        async with RegistryServer(options(tmp_path)) as server:
            other = replace(options(tmp_path / "other"), port=server.port)
            with pytest.raises(ConfigError, match="Address already in use"):
                async with RegistryServer(other):
                    pass

    asyncio.run(run())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host": "0.0.0.0"}, "would receive tokens without TLS"),
        ({"certificate": "c.pem"}, "belong together"),
        ({"client_ca": "ca.pem"}, "needs --certificate"),
    ],
)
def test_options_that_contradict_each_other(changes: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RegistryServer(RegistryOptions(**changes))  # type: ignore[arg-type]
    RegistryServer(RegistryOptions(host="0.0.0.0", is_insecure_allowed=True))


def test_a_name_of_another_host_is_refused(tmp_path: Path) -> None:
    """DNS rebinding: a page's own name resolves to this host."""

    async def run() -> tuple[bytes, bytes]:
        async with RegistryServer(options(tmp_path)) as server:
            return await _raw(server.port, "/registry/v1/tree"), await _raw(server.port, "/health")

    refused, health = asyncio.run(run())
    assert refused.startswith(b"HTTP/1.1 421 ")
    assert health.startswith(b"HTTP/1.1 200 "), "probes send any name"


async def _raw(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n".encode())
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


def secured(tmp_path: Path) -> RegistryOptions:
    own = identities()
    return replace(
        options(tmp_path),
        certificate=str(own.server.chain),
        key=str(own.server.key),
        client_ca=str(own.authority.certificate),
    )


def test_tokens_and_certificates_over_tls(tmp_path: Path) -> None:
    async def run() -> None:
        async with RegistryServer(secured(tmp_path)) as server:
            plain, own = client_context(), client_context(identities().client)
            assert await register(server, plain, has_token=False) == 401
            assert await register(server, own, has_token=False) == 200
            assert await register(server, plain) == 403, "the id belongs to the certificate"
            with pytest.raises(RegistryUnreachableError, match="certificate verify failed"):
                await register(server, ssl.create_default_context())
            with pytest.raises(RegistryUnreachableError):
                await register(server, client_context(identities().stranger), has_token=False)

    asyncio.run(run())


def test_files_that_are_no_certificate_are_refused_at_the_start(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("wrong")

    async def run() -> None:
        async with RegistryServer(replace(secured(tmp_path), certificate=str(wrong))):
            pass

    with pytest.raises(ConfigError):
        asyncio.run(run())


# --- The client against hostile servers ---


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def peer(answer: Serve) -> AsyncIterator[RegistryHttp]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            with contextlib.suppress(OSError):
                await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield RegistryHttp(f"http://127.0.0.1:{port}", seconds_max=0.3, answer_bytes_max=1_000)


def fails(answer: Serve) -> str:
    async def run() -> str:
        async with peer(answer) as http:
            with pytest.raises(RegistryUnreachableError) as caught:
                await http.call("GET", "/x")
            return str(caught.value)

    return asyncio.run(run())


def test_a_server_that_says_nothing() -> None:
    async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    assert "no answer within" in fails(silent)


def test_a_server_that_sends_a_byte_at_a_time() -> None:
    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(100):
            writer.write(b"x")
            await asyncio.sleep(0.02)

    assert "no answer within" in fails(slow)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cannot be used"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "cannot be used"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 30_000 + b"\r\n", "cannot be used"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n" + b"x" * 9_999, "more than 1000"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", "cannot be used"),
    ],
)
def test_answers_that_are_not_http_or_too_large(data: bytes, words: str) -> None:
    async def send(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    assert words in fails(send)


@pytest.mark.parametrize(
    "url", ["", "x", "ftp://h", "http://", "http://h:x", "http://u@h", "http://h/?q", "http://h #"]
)
def test_texts_that_are_not_the_url_of_a_registry(url: str) -> None:
    assert url_problem(url)


def test_urls_with_a_path_and_an_address_of_six_bytes() -> None:
    assert url_problem("https://[::1]:8070/edge/") is None


# --- Tokens ---


def test_a_token_is_created_once(tmp_path: Path) -> None:
    path = str(tmp_path / "token")
    assert read_or_create_token(path, lambda: "a" * 40) == "a" * 40
    assert read_or_create_token(path, lambda: "b" * 40) == "a" * 40
    assert Path(path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "short", "x" * 600, "a b" * 20, "é" * 40])
def test_texts_that_are_not_tokens(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(ConfigError, match="the token in"):
        read_token(str(path))


# --- Kill ---


@pytest.mark.slow
def test_kill_at_random_moments_loses_no_answered_change(tmp_path: Path) -> None:
    """Register nodes one after the other and kill the registry; each answered one is there."""
    answered: list[str] = []
    words = [sys.executable, "-m", "penstock", "registry", "--port", "0", "--data-dir"]
    directory = tmp_path / "registry"
    for round_number in range(8):
        with subprocess.Popen(
            [*words, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            try:
                assert process.stdout is not None
                url = process.stdout.readline().split()[5]
                asyncio.run(_register_until_killed(url, directory, process, round_number, answered))
            finally:
                process.kill()

    async def check() -> TreeDocument:
        server = RegistryServer(RegistryOptions(data_dir=str(directory), port=0))
        async with server:
            return await tree(server)

    assert len(answered) > 8
    assert set(answered) <= {one.id for one in asyncio.run(check()).nodes}


async def _register_until_killed(
    url: str, directory: Path, process: "subprocess.Popen[str]", number: int, answered: list[str]
) -> None:
    join = read_token(str(directory / "join.token"))
    headers = {"Authorization": f"Bearer {KEY}", "Penstock-Join-Token": join}
    http = RegistryHttp(url)
    asyncio.get_running_loop().call_later(
        0.05 + 0.04 * number, os.kill, process.pid, signal.SIGKILL
    )
    with contextlib.suppress(RegistryUnreachableError):
        for count in range(10_000):
            name = f"n-{number}-{count}"
            answer = await http.call("PUT", f"/registry/v1/nodes/{name}", headers, BODY)
            assert TopologyDocument.model_validate_json(answer.body).id == name
            answered.append(name)
