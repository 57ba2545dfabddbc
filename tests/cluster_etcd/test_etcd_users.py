"""Users, tokens, permissions and certificates of a real etcd."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from penstock.cluster.etcd.etcd_options import EtcdOptions
from penstock.cluster.etcd.etcd_store import EtcdMetadataStore
from penstock.cluster.stores.port import Put
from penstock.core.errors import AmbiguousStoreError, StoreError
from tests.cluster_etcd.counter_workload import KEY, PREFIX, CounterWorkload, KeptSession
from tests.cluster_etcd.cutting_proxy import proxies
from tests.cluster_etcd.etcd_stores import options, store_of
from tests.oracle.certificates import CertificateAuthority, rsa_key
from tests.oracle.etcd_server import EtcdCluster, Tls

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(180)]

ROOT = "root:rootpw"
BROKER = "broker:brokerpw"
TOKEN_SECONDS = 2


def enable_authentication(etcd: EtcdCluster) -> None:
    """A root, and a broker that may write below one prefix."""
    etcd.control("user", "add", ROOT)
    etcd.control("user", "grant-role", "root", "root")
    etcd.control("user", "add", BROKER)
    etcd.control("role", "add", "cluster")
    grant(etcd)
    etcd.control("user", "grant-role", "broker", "cluster")
    etcd.control("auth", "enable")


def grant(etcd: EtcdCluster, user: str = "") -> None:
    words = ("role", "grant-permission", "cluster", "--prefix=true", "readwrite", PREFIX)
    etcd.control(*words, user=user)


def revoke(etcd: EtcdCluster) -> None:
    etcd.control("role", "revoke-permission", "cluster", "--prefix=true", PREFIX, user=ROOT)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdCluster]:
    """Tokens are random texts that a member keeps in memory."""
    with EtcdCluster(tmp_path / "etcd") as cluster:
        enable_authentication(cluster)
        yield cluster


@pytest.fixture
def expiring(tmp_path: Path) -> Iterator[EtcdCluster]:
    """Tokens are signed and expire after two seconds, used or not."""
    key = rsa_key()
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    token = f"jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl={TOKEN_SECONDS}s"
    with EtcdCluster(tmp_path / "etcd", arguments=["--auth-token", token]) as cluster:
        enable_authentication(cluster)
        yield cluster


def test_tokens_expire_under_calls_sessions_and_watches(expiring: EtcdCluster) -> None:
    async def main() -> None:
        lines_to = [member.client_port for member in expiring.members]
        async with proxies(*lines_to) as lines:
            urls = [line.url for line in lines]
            async with (
                store_of(urls, login=BROKER) as writer,
                store_of(urls, first_member=1, login=BROKER) as watcher,
                KeptSession(watcher, 9).running() as kept,
                CounterWorkload(writer, watcher).running() as workload,
            ):
                for _ in range(3):
                    await asyncio.sleep(TOKEN_SECONDS + 1.2)
                    # The watch is opened again with a token that has expired.
                    for line in lines:
                        line.cut()
                    await workload.acknowledge(20)
            assert kept.renewals >= 3
            assert kept.losses == 0

    asyncio.run(main())


def test_a_quiet_watch_is_opened_again_with_an_expired_token(expiring: EtcdCluster) -> None:
    async def main() -> None:
        async with (
            proxies(*(member.client_port for member in expiring.members)) as lines,
            store_of([line.url for line in lines], login=BROKER) as quiet,
            store_of(expiring.endpoints, login=BROKER) as writer,
        ):
            first = (await quiet.read(KEY)).revision + 1
            watch = quiet.watch(PREFIX, from_revision=first)
            written = await writer.transact((), (Put(KEY, b"1"),))
            assert (await anext(watch)).revision == written.revision
            await asyncio.sleep(TOKEN_SECONDS + 1.2)
            for line in lines:
                line.cut()
            written = await writer.transact((), (Put(KEY, b"2"),))
            async with asyncio.timeout(10):
                assert (await anext(watch)).revision == written.revision

    asyncio.run(main())


def test_restarted_members_have_forgotten_the_token(etcd: EtcdCluster) -> None:
    async def main() -> None:
        async with (
            store_of(etcd.endpoints, login=BROKER) as writer,
            store_of(etcd.endpoints, first_member=1, login=BROKER) as watcher,
            CounterWorkload(writer, watcher).running() as workload,
        ):
            for member in etcd.members:
                await workload.acknowledge(10)
                await asyncio.to_thread(member.kill)
                etcd.restart(member)
                await asyncio.to_thread(etcd.wait)
            await workload.acknowledge(10)

    asyncio.run(main())


def test_a_revoked_permission_is_an_error_and_a_granted_one_works_again(
    etcd: EtcdCluster,
) -> None:
    async def main() -> None:
        async with store_of(etcd.endpoints, login=BROKER) as store:
            first = (await store.transact((), (Put(KEY, b"1"),))).revision
            with pytest.raises(StoreError, match="etcd denied a transaction"):
                await store.transact((), (Put("/elsewhere", b"1"),))
            await asyncio.to_thread(revoke, etcd)
            with pytest.raises(StoreError, match=r"etcd denied .*grant the user's role") as denied:
                await store.transact((), (Put(KEY, b"2"),))
            assert not isinstance(denied.value, AmbiguousStoreError)
            with pytest.raises(StoreError, match="etcd denied a read"):
                await store.read(KEY)
            async with asyncio.timeout(5):
                with pytest.raises(StoreError, match=r"refused to watch .*grant its role `read`"):
                    await anext(store.watch(PREFIX, from_revision=first))
            await asyncio.to_thread(grant, etcd, ROOT)
            assert (await store.read(KEY)).values[0].value == b"1"
            watch = store.watch(PREFIX, from_revision=first)
            assert (await anext(watch)).revision == first

    asyncio.run(main())


def test_wrong_passwords_and_no_user(etcd: EtcdCluster) -> None:
    async def main() -> None:
        async with store_of(etcd.endpoints, login="broker:wrong") as store:
            with pytest.raises(StoreError, match=r"rejected the user or the password"):
                await store.read(KEY)
        async with store_of(etcd.endpoints) as store:
            with pytest.raises(StoreError, match=r"asks for a user .*cluster\.user"):
                await store.read(KEY)
            async with asyncio.timeout(5):
                with pytest.raises(StoreError, match="refused to watch"):
                    await anext(store.watch(PREFIX, from_revision=1))

    asyncio.run(main())


def test_a_user_is_not_needed_without_authentication(tmp_path: Path) -> None:
    async def main(etcd: EtcdCluster) -> None:
        store = await EtcdMetadataStore.open(options(etcd.endpoints, login=BROKER), root=PREFIX)
        await store.transact((), (Put(KEY, b"1"),))
        await store.close()

    with EtcdCluster(tmp_path, members=1) as etcd:
        asyncio.run(main(etcd))


class Secured:
    """An etcd with TLS and certificates of clients as users."""

    def __init__(self, folder: Path) -> None:
        self.authority = CertificateAuthority(folder / "certificates")
        server = self.authority.server()
        root = self.authority.client("CN=root")
        self.broker = self.authority.client("CN=broker")
        tls = Tls(self.authority.certificate, server.chain, server.key, root.chain, root.key)
        self.etcd = EtcdCluster(folder / "etcd", tls=tls)

    def options(self) -> EtcdOptions:
        return replace(
            options(self.etcd.endpoints),
            ca_file=str(self.authority.certificate),
            certificate_file=str(self.broker.chain),
            key_file=str(self.broker.key),
        )


def test_certificates_of_clients(tmp_path: Path) -> None:
    secured = Secured(tmp_path)

    async def main() -> None:
        good = secured.options()
        store = await EtcdMetadataStore.open(good, root=PREFIX)
        first = (await store.transact((), (Put(KEY, b"1"),))).revision
        assert (await anext(store.watch(PREFIX, from_revision=first))).revision == first
        with pytest.raises(StoreError, match="etcd denied"):
            await store.read("/elsewhere")
        await asyncio.to_thread(secured.etcd.members[0].kill)
        # It may have led: a read goes to another member until there is a leader again.
        assert (await store.read(KEY)).values[0].value == b"1"
        await store.transact((), (Put(KEY, b"2"),))
        await store.close()
        stranger = CertificateAuthority(tmp_path / "stranger").client("CN=root")
        for wrong in (
            replace(good, certificate_file="", key_file=""),
            replace(good, certificate_file=str(stranger.chain), key_file=str(stranger.key)),
            replace(good, ca_file=str(stranger.chain)),
            replace(good, ca_file=str(tmp_path / "nowhere.pem")),
        ):
            store = EtcdMetadataStore(wrong)
            with pytest.raises(StoreError) as failed:
                await store.transact((), (Put(KEY, b"3"),))
            assert not isinstance(failed.value, AmbiguousStoreError)
            await store.close()

    with secured.etcd:
        for user in ("root", "broker"):
            secured.etcd.control("user", "add", user, "--no-password")
        secured.etcd.control("role", "add", "cluster")
        grant(secured.etcd)
        secured.etcd.control("user", "grant-role", "root", "root")
        secured.etcd.control("user", "grant-role", "broker", "cluster")
        secured.etcd.control("auth", "enable")
        asyncio.run(main())
