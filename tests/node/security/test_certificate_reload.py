"""Reload of TLS files: as a whole, never half, never a changed context; and under load."""

import asyncio
import os
import shutil
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from penstock.broker.tls.tls_files import TlsFiles, TlsSnapshot, read_files
from penstock.core.clock import SystemClock
from penstock.core.errors import ConfigError
from penstock.core.metrics import Registry
from penstock.node.security.certificate_reload import CONTEXT_SECONDS_MAX, CertificateReload
from tests.broker.tls.socket_stage import SECONDS_MAX, TlsServer
from tests.oracle.certificates import (
    CURRENT,
    EXPIRED,
    CertificateAuthority,
    Identity,
    Validity,
)

RELOADS = int(os.environ.get("PENSTOCK_RELOADS", "50"))
NAME = "CLIENTS"


class MovedClock:
    """The system's clock, moved by the test."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return SystemClock().now_ms() + int(self.seconds * 1_000)

    def monotonic(self) -> float:
        return SystemClock().monotonic() + self.seconds


class Folder:
    """The files of a listener, which the test replaces."""

    def __init__(self, folder: Path) -> None:
        self.authority = CertificateAuthority(folder / "authority")
        self.other_authority = CertificateAuthority(folder / "other", name="Another authority")
        self.certificate = folder / "server.crt"
        self.key = folder / "server.key"
        self.client_ca = folder / "clients.crt"
        self.install(self.authority.server())
        self.trust(self.authority)
        self.files = TlsFiles(
            str(self.certificate), str(self.key), None, str(self.client_ca), "required"
        )
        self.clock = MovedClock()
        self.metrics = Registry()
        self.events: list[tuple[str, str | None]] = []
        self._writes = 0

    def install(self, identity: Identity) -> None:
        self.replace(self.certificate, identity.chain.read_bytes())
        self.replace(self.key, identity.key.read_bytes())

    def trust(self, authority: CertificateAuthority) -> None:
        self.replace(self.client_ca, authority.certificate.read_bytes())

    @staticmethod
    def replace(path: Path, content: bytes) -> None:
        """Write beside the file and rename: each write is another file."""
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.rename(path)

    def reload(self) -> CertificateReload:
        return CertificateReload(
            {NAME: self.files},
            self.clock,
            self.metrics,
            lambda name, problem: self.events.append((name, problem)),
        )

    def counts(self) -> tuple[float, float]:
        values = self.metrics.snapshot()
        return (
            values['tls_reloads_total{result="applied"}'],
            values['tls_reloads_total{result="refused"}'],
        )

    def seconds_left(self) -> float:
        return self.metrics.snapshot()[f'tls_certificate_expiry_seconds{{listener="{NAME}"}}']


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def look(reload: CertificateReload, times: int = 2) -> None:
    async def looks() -> None:
        for _ in range(times):
            await reload.look()

    asyncio.run(looks())


def problem_of(reload: CertificateReload) -> str:
    return reload.problem or ""


def leaf(context: ssl.SSLContext, authority: CertificateAuthority) -> bytes:
    """The certificate that a client sees; a handshake in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    client = trust.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return found


def der(identity: Identity) -> bytes:
    return ssl.PEM_cert_to_DER_cert(identity.certificate.read_text())


# --- Changes ---


def test_renewed_files_are_used_after_two_equal_looks(folder: Folder) -> None:
    reload = folder.reload()
    source = reload.context_source(NAME)
    first = source()
    renewed = folder.authority.server()
    folder.install(renewed)
    look(reload, 1)
    assert source() is first
    look(reload, 1)
    assert source() is not first
    assert leaf(source(), folder.authority) == der(renewed)
    assert folder.counts() == (1, 0)
    assert folder.events == [(NAME, None)]
    assert reload.problem is None


def test_files_that_do_not_change_are_not_read(folder: Folder) -> None:
    reload = folder.reload()
    first = reload.context_source(NAME)()
    look(reload, 5)
    assert reload.context_source(NAME)() is first
    assert folder.counts() == (0, 0)


def test_a_certificate_waits_for_its_key(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    reload = folder.reload()
    source = reload.context_source(NAME)
    first = source()
    renewed = folder.authority.server()
    folder.replace(folder.certificate, renewed.chain.read_bytes())
    look(reload)
    assert source() is first
    assert "does not belong" in problem_of(reload)
    assert folder.counts() == (0, 1)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    look(reload, 5)
    assert folder.counts() == (0, 1), "a refused file is not tried again without a change"
    folder.replace(folder.key, renewed.key.read_bytes())
    look(reload)
    assert leaf(source(), folder.authority) == der(renewed)
    assert not problem_of(reload)
    assert folder.counts() == (1, 1)
    assert len(folder.events) == 2


def test_a_changed_authority_is_a_change(folder: Folder) -> None:
    reload = folder.reload()
    first = reload.context_source(NAME)()
    folder.trust(folder.other_authority)
    look(reload)
    assert reload.context_source(NAME)() is not first


def test_a_link_with_another_target_is_a_change(folder: Folder, tmp_path: Path) -> None:
    """As Kubernetes renews a secret."""
    for number in (1, 2):
        version = tmp_path / f"version-{number}"
        version.mkdir()
        own = folder.authority.server()
        shutil.copy(own.chain, version / "tls.crt")
        shutil.copy(own.key, version / "tls.key")
    link = tmp_path / "current"
    link.symlink_to("version-1")
    folder.files = TlsFiles(str(link / "tls.crt"), str(link / "tls.key"))
    reload = folder.reload()
    first = reload.context_source(NAME)()
    fresh = tmp_path / "fresh"
    fresh.symlink_to("version-2")
    fresh.rename(link)
    look(reload)
    assert reload.context_source(NAME)() is not first


def test_a_file_that_changes_while_it_is_read_is_read_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed, newest = folder.authority.server(), folder.authority.server()
    reload = folder.reload()
    first = reload.context_source(NAME)()
    folder.install(renewed)
    target = "penstock.broker.tls.tls_files.read_files"

    def read_and_change(files: TlsFiles) -> TlsSnapshot:
        found = read_files(files)
        monkeypatch.setattr(target, read_files)
        folder.install(newest)
        return found

    monkeypatch.setattr(target, read_and_change)
    look(reload)
    assert reload.context_source(NAME)() is first
    assert folder.counts() == (0, 0)
    look(reload)
    assert leaf(reload.context_source(NAME)(), folder.authority) == der(newest)


def test_files_are_read_again_on_request(folder: Folder) -> None:
    reload = folder.reload()
    first = reload.context_source(NAME)()
    reload.ask()
    look(reload, 1)
    assert reload.context_source(NAME)() is not first
    assert folder.counts() == (1, 0)


def test_the_watch_runs_until_it_is_cancelled(folder: Folder) -> None:
    reload = folder.reload()
    first = reload.context_source(NAME)()

    async def watch() -> None:
        task = asyncio.get_running_loop().create_task(reload.run())
        reload.ask()
        while reload.context_source(NAME)() is first:  # noqa: ASYNC110 (has a time limit)
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(watch(), SECONDS_MAX))


# --- Problems ---


def bad_files(folder: Folder) -> dict[str, Callable[[], None]]:
    """Each kind of bad files."""
    authority = folder.authority
    own = authority.server()
    expired, client = authority.server(validity=EXPIRED), authority.client()
    certificate = own.chain.read_bytes()

    def make_folder() -> None:
        folder.key.unlink()
        folder.key.mkdir()

    return {
        "no certificate": folder.certificate.unlink,
        "no key": folder.key.unlink,
        "no authority": folder.client_ca.unlink,
        "empty certificate": lambda: folder.replace(folder.certificate, b""),
        "empty key": lambda: folder.replace(folder.key, b""),
        "empty authority": lambda: folder.replace(folder.client_ca, b""),
        "half a certificate": lambda: folder.replace(folder.certificate, certificate[:400]),
        "half a key": lambda: folder.replace(folder.key, own.key.read_bytes()[:100]),
        "other key": lambda: folder.replace(folder.key, own.key.read_bytes()),
        "expired": lambda: folder.install(expired),
        "of a client": lambda: folder.install(client),
        "a folder": make_folder,
        "noise": lambda: folder.replace(folder.certificate, os.urandom(2_000)),
    }


KINDS = (
    "no certificate",
    "no key",
    "no authority",
    "empty certificate",
    "empty key",
    "empty authority",
    "half a certificate",
    "half a key",
    "other key",
    "expired",
    "of a client",
    "a folder",
    "noise",
)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_files_change_nothing(folder: Folder, kind: str) -> None:
    reload = folder.reload()
    source = reload.context_source(NAME)
    first, seen = source(), leaf(source(), folder.authority)
    bad_files(folder)[kind]()
    look(reload)
    assert source() is first
    assert leaf(source(), folder.authority) == seen
    assert reload.problem is not None
    assert NAME in reload.problem
    assert folder.counts() == (0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_does_not_start_with_bad_files(folder: Folder, kind: str) -> None:
    bad_files(folder)[kind]()
    with pytest.raises(ConfigError, match=f"listener {NAME}: "):
        folder.reload()


def test_the_expiry_is_shown(folder: Folder) -> None:
    reload = folder.reload()
    days = CURRENT.until_days
    assert (days - 0.1) * 86_400 < folder.seconds_left() < (days + 0.1) * 86_400
    folder.clock.seconds = (days + 1) * 86_400
    assert folder.seconds_left() < 0
    assert "expired at" in problem_of(reload)
    folder.clock.seconds = 0
    folder.install(folder.authority.server(validity=Validity(-1, 300)))
    look(reload)
    assert folder.seconds_left() > 290 * 86_400
    assert not problem_of(reload)


def test_a_context_is_replaced_after_a_day(folder: Folder) -> None:
    reload = folder.reload()
    source = reload.context_source(NAME)
    first, seen = source(), leaf(source(), folder.authority)
    folder.clock.seconds = CONTEXT_SECONDS_MAX + 1
    look(reload, 1)
    assert source() is not first
    assert leaf(source(), folder.authority) == seen
    second = source()
    look(reload, 1)
    assert source() is second
    assert folder.counts() == (0, 0)
    folder.clock.seconds = (CURRENT.until_days + 1) * 86_400
    look(reload, 1)
    assert source() is second, "expired: the old context stays, and the problem is reported"


# --- Under load ---


class Clients:
    """Threads that connect, talk and close, and note whose certificate they see."""

    def __init__(self, server: TlsServer, context: Callable[[], ssl.SSLContext]) -> None:
        self._server = server
        self._context = context
        self._stopping = threading.Event()
        self.talked = 0
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(3)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(SECONDS_MAX)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._talk()
            except (OSError, AssertionError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    def _talk(self) -> None:
        with self._server.client(self._context()) as client:
            for _ in range(3):
                client.sendall(b"request")
                assert client.recv(7) == b"request"
            self.talked += 1


def outcome(server: TlsServer, context: ssl.SSLContext) -> bool:
    """Whether a client gets an answer."""
    try:
        with server.client(context) as client:
            client.sendall(b"request")
            return client.recv(7) == b"request"
    except (ssl.SSLError, ConnectionError):
        return False


def client_of(authority: CertificateAuthority, folder: Folder) -> ssl.SSLContext:
    identity = authority.client()
    context = ssl.create_default_context(cafile=str(folder.authority.certificate))
    context.load_cert_chain(identity.chain, identity.key)
    return context


@pytest.mark.slow
@pytest.mark.timeout(60 + 2 * RELOADS)
def test_reloads_under_load(folder: Folder) -> None:
    """Good clients are always served, and a client of removed authorities never is."""
    reload = folder.reload()
    both = folder.authority.certificate.read_bytes() + (
        folder.other_authority.certificate.read_bytes()
    )
    good, other = (
        client_of(authority, folder) for authority in (folder.authority, folder.other_authority)
    )
    kinds = list(KINDS)
    with (
        TlsServer("uvloop", context_source=reload.context_source(NAME)) as server,
        Clients(server, lambda: good) as clients,
        server.client(good) as lasting,
    ):
        for number in range(RELOADS):
            renewed = folder.authority.server()
            folder.install(renewed)
            is_other_trusted = number % 2 == 0
            folder.replace(
                folder.client_ca,
                both if is_other_trusted else folder.authority.certificate.read_bytes(),
            )
            look(reload)
            assert not problem_of(reload)
            for _ in range(2):
                assert outcome(server, other) == is_other_trusted
            bad_files(folder)[kinds[number % len(kinds)]]()
            look(reload)
            assert problem_of(reload)
            assert outcome(server, good)
            assert outcome(server, other) == is_other_trusted
            with server.client(good) as client:
                assert client.getpeercert(binary_form=True) == der(renewed)
            if folder.key.is_dir():
                folder.key.rmdir()
        lasting.sendall(b"from the first context")
        assert lasting.recv(100) == b"from the first context"
    assert not clients.failures
    assert clients.talked > RELOADS
    assert folder.counts() == (RELOADS, RELOADS)
