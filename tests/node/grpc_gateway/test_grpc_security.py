"""Identities, rules and bounds of the gRPC gateway."""

import asyncio
import base64
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from penstock import BrokerServer
from penstock.cluster.quota_entities import QuotaEntity
from penstock.core.errors import ConfigError
from penstock.edge.grpc_gateway import gateway_calls, gateway_limits
from penstock.edge.grpc_gateway.gateway_ports import ServerPem
from penstock.edge.grpc_gateway.gateway_statuses import GatewayRefusalError
from penstock.edge.push.ports import Admitted, PushRefusedError, Start
from penstock.node.grpc_gateway.gateway_broker import NodeGatewayBroker
from penstock.node.grpc_gateway.grpc_door import GrpcDoor
from penstock.node.grpc_gateway.login_memory import LoginMemory
from penstock.protocol.push.frames import FrameType, encode_frame
from penstock.protocol.push.payloads import Refusal, write_object
from tests.node.grpc_gateway.grpc_stage import (
    PLAIN_TEXT,
    generated,
    grpc_broker,
    grpc_stub,
    status_of,
)
from tests.node.push.push_stage import run, settings_from
from tests.oracle.certificates import CertificateAuthority

PASSWORD = "administrator-secret"


def basic(user: str = "admin", password: str = PASSWORD) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a user."""
    text = base64.b64encode(f"{user}:{password}".encode()).decode()
    return (("authorization", f"Basic {text}"),)


def sasl_settings(folder: Path, more: str = "", mechanism: str = "PLAIN") -> str:
    """Return settings with one listener whose clients log in."""
    file = folder / "administrator.txt"
    file.write_text(f"admin:{PASSWORD}\n")
    file.chmod(0o600)
    return f"""
[node]
storage = "memory"
[security]
bootstrap_admin_file = "{file}"
failed_login_delay_ms = 0
{more}
[edge]
grpc_port = 0
[[listeners]]
name = "CLIENTS"
port = 0
protocol = "SASL_PLAINTEXT"
mechanisms = ["{mechanism}"]
"""


def test_user_and_password_in_metadata(tmp_path: Path) -> None:
    async def test() -> None:
        pb = generated()
        async with grpc_broker(sasl_settings(tmp_path)) as broker, grpc_stub(broker) as stub:
            request = pb.ProduceRequest(topic="t", records=[pb.Record(value=b"v")])
            await stub.Produce(request, metadata=basic())
            for metadata in ((), basic(password="wrong"), (("authorization", "Basic x"),)):
                status, message, _ = await status_of(stub.Produce(request, metadata=metadata))
                assert status == "UNAUTHENTICATED"
                assert PASSWORD not in message
            session = stub.Session()
            assert (await session.code()).name == "UNAUTHENTICATED"
            assert broker._grpc is not None
            assert broker._grpc.server.admission.count == 0

    run(test)


def test_a_client_is_authenticated_before_its_message_is_read(tmp_path: Path) -> None:
    async def test() -> None:
        async with grpc_broker(sasl_settings(tmp_path)) as broker, grpc_stub(broker) as stub:
            # No message follows: a server that reads first waits for it.
            call = stub.channel.stream_unary("/penstock.v1.Penstock/Produce")()
            async with asyncio.timeout(5):
                assert (await call.code()).name == "UNAUTHENTICATED"

    run(test)


def test_access_rules_apply(tmp_path: Path) -> None:
    async def test() -> None:
        pb = generated()
        text = sasl_settings(tmp_path, 'authorizer = "acl"\nsuper_users = "User:boss"')
        async with grpc_broker(text) as broker, grpc_stub(broker) as stub:
            denied = {
                "Produce": pb.ProduceRequest(topic="t", records=[pb.Record(value=b"v")]),
                "Fetch": pb.FetchRequest(topic="t", offset=0),
                "CommitOffset": pb.CommitOffsetRequest(
                    group="g", topic="t", offsets=[pb.PartitionOffset()]
                ),
            }
            for name, request in denied.items():
                call = getattr(stub, name)(request, metadata=basic())
                assert (await status_of(call))[0] == "PERMISSION_DENIED", name
            found = await stub.GetTopicMetadata(
                pb.GetTopicMetadataRequest(topics=["t"]), metadata=basic()
            )
            assert found.topics[0].error == "TOPIC_AUTHORIZATION_FAILED"
            assert not found.topics[0].partitions

    run(test)


def tls_settings(authority: CertificateAuthority, client_auth: str = "required") -> str:
    """Return settings with one listener with TLS."""
    server, client = authority.broker(), ""
    if client_auth != "none":
        client = f'client_ca = "{authority.certificate}"\nclient_auth = "{client_auth}"'
    return f"""
[node]
storage = "memory"
[edge]
grpc_port = 0
[[listeners]]
name = "CLIENTS"
port = 0
protocol = "SSL"
[listeners.tls]
certificate = "{server.chain}"
key = "{server.key}"
{client}
"""


def test_tls_with_client_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = CertificateAuthority(tmp_path / "ca")
    known = authority.client("CN=shelf")
    proven = []
    prove = GrpcDoor.prove

    async def watched(*arguments: Any) -> Any:  # noqa: ANN401
        found = await prove(*arguments)
        proven.append(str(found.client))
        return found

    monkeypatch.setattr(GrpcDoor, "prove", watched)

    async def test() -> None:
        pb = generated()
        request = pb.ProduceRequest(topic="t", records=[pb.Record(value=b"v")])
        root = authority.certificate.read_bytes()
        async with grpc_broker(tls_settings(authority)) as broker:
            trusted = grpc.ssl_channel_credentials(
                root, known.key.read_bytes(), known.chain.read_bytes()
            )
            async with grpc_stub(broker, trusted) as stub:
                await stub.Produce(request)
                assert "shelf" in proven[0]
            async with grpc_stub(broker, grpc.ssl_channel_credentials(root)) as stub:
                status, _, _ = await status_of(stub.Produce(request, timeout=3))
                assert status == "UNAVAILABLE"
            async with grpc_stub(broker) as stub:
                status, _, _ = await status_of(stub.Produce(request, timeout=3))
                assert status == "UNAVAILABLE"
            assert len(proven) == 1

    run(test)


def test_renewed_files_are_used_for_new_connections(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "ca")
    other = CertificateAuthority(tmp_path / "other")

    async def test() -> None:
        pb = generated()
        request = pb.GetTopicMetadataRequest(topics=["t"])
        async with grpc_broker(tls_settings(authority, "none")) as broker:
            assert broker._grpc is not None
            server, renewed = broker._grpc.server, other.broker()
            server.use_files(ServerPem(renewed.chain.read_bytes(), renewed.key.read_bytes(), None))
            root = grpc.ssl_channel_credentials(other.certificate.read_bytes())
            async with grpc_stub(broker, root) as stub:
                await stub.GetTopicMetadata(request, timeout=5)
            broker._parts.security.certificates._reloaded("CLIENTS", None)  # type: ignore[union-attr]
            async with asyncio.timeout(5):
                while server._pem is None or server._pem.certificate == renewed.chain.read_bytes():  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            root = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
            async with grpc_stub(broker, root) as stub:
                await stub.GetTopicMetadata(request, timeout=5)

    run(test)


def test_client_certificates_that_are_only_requested_are_refused_at_the_start(
    tmp_path: Path,
) -> None:
    authority = CertificateAuthority(tmp_path / "ca")

    async def test() -> None:
        with pytest.raises(ConfigError, match="none and required only"):
            async with BrokerServer(settings_from(tls_settings(authority, "requested"))):
                pass

    run(test)


def test_a_used_port_ends_the_start() -> None:
    async def test() -> None:
        async with grpc_broker() as broker:
            text = PLAIN_TEXT.replace("grpc_port = 0", f"grpc_port = {broker.grpc_port}")
            with pytest.raises(ConfigError, match="for gRPC"):
                async with BrokerServer(settings_from(text)):
                    pass

    run(test)


def test_an_open_address_without_tls_is_refused() -> None:
    with pytest.raises(ConfigError, match="without TLS"):
        settings_from(PLAIN_TEXT.replace("grpc_port = 0", 'grpc_port = 0\nhost = "0.0.0.0"'))


def test_changed_rules_apply_to_a_fetch_that_waits() -> None:
    class Rules:
        is_allowed = True

        def allows(self, *_: object, **__: object) -> bool:
            return self.is_allowed

    async def test() -> None:
        pb = generated()
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            rules = Rules()
            object.__setattr__(broker._running.services, "access", rules)
            waiting = stub.Fetch(pb.FetchRequest(topic="t", offset=-1, wait_ms_max=20_000))
            assert broker._grpc is not None
            while not broker._grpc.server.admission.count:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await asyncio.sleep(0.02)
            rules.is_allowed = False
            await broker.publish("t", b"denied")
            assert (await status_of(waiting))[0] == "PERMISSION_DENIED"

    run(test)


def test_a_session_ends_when_its_credentials_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    prove = GrpcDoor.prove

    async def short(*arguments: Any) -> Any:  # noqa: ANN401
        return (await prove(*arguments))._replace(lifetime_seconds=0.05)

    monkeypatch.setattr(GrpcDoor, "prove", short)

    async def test() -> None:
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            call = stub.Session()
            message = await call.read()
            assert b"SASL_AUTHENTICATION_FAILED" in message.data
            assert (await call.code()).name == "OK"

    run(test)


# --- Bounds ---


def test_a_message_above_the_bound_is_refused() -> None:
    async def test() -> None:
        pb = generated()
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            room = gateway_limits.MESSAGE_BYTES_MAX - 100
            below = pb.ProduceRequest(topic="t", records=[pb.Record(value=b"x" * room)])
            status, _, metadata = await status_of(stub.Produce(below))
            assert metadata["penstock-error"] == "MESSAGE_TOO_LARGE", status
            above = pb.ProduceRequest(topic="t", records=[pb.Record(value=b"x" * (room + 100))])
            status, _, _ = await status_of(stub.Produce(above))
            assert status == "RESOURCE_EXHAUSTED"
            fits = pb.ProduceRequest(topic="t", records=[pb.Record(value=b"x" * 1_000_000)])
            assert list((await stub.Produce(fits)).offsets) == [0]

    run(test)


def test_compressed_messages_are_refused() -> None:
    async def test() -> None:
        pb = generated()
        request = pb.ProduceRequest(topic="t", records=[pb.Record(value=b"x" * 1_000)])
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            call = stub.Produce(request, compression=grpc.Compression.Gzip)
            assert (await status_of(call))[0] == "UNIMPLEMENTED"

    run(test)


def test_calls_of_one_address_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        pb = generated()
        request = pb.FetchRequest(topic="t", offset=-1, wait_ms_max=30_000)
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            assert broker._grpc is not None
            admission = broker._grpc.server.admission
            monkeypatch.setattr(admission, "_per_address_max", 3)
            waiting = [stub.Fetch(request) for _ in range(3)]
            async with asyncio.timeout(5):
                while admission.count < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            status, message, metadata = await status_of(stub.Fetch(request))
            assert (status, metadata["penstock-retriable"]) == ("RESOURCE_EXHAUSTED", "true")
            assert "127.0.0.1 has 3 calls" in message
            for one in waiting:
                one.cancel()
            async with asyncio.timeout(5):
                while admission.count:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)

    run(test)


def test_unfinished_messages_and_unread_answers_are_bounded_in_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        pb = generated()
        wanted = pb.FetchRequest(topic="t", offset=-1, wait_ms_max=30_000)
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            assert broker._grpc is not None
            room = broker._grpc.server.room
            monkeypatch.setattr(room, "_bytes_max", gateway_limits.MESSAGE_BYTES_MAX * 2)
            # Calls whose small message has arrived do not use up the room.
            waiting = [stub.Fetch(wanted) for _ in range(20)]
            async with asyncio.timeout(5):
                while not 0 < room.used_bytes < 1_000:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            session = stub.Session()
            async with asyncio.timeout(5):
                while room.used_bytes < gateway_limits.MESSAGE_BYTES_MAX:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            status, message, metadata = await status_of(stub.Fetch(wanted))
            assert (status, metadata["penstock-retriable"]) == ("RESOURCE_EXHAUSTED", "true")
            assert "the limit is" in message
            for one in (*waiting, session):
                one.cancel()
            async with asyncio.timeout(5):
                while room.used_bytes:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)

    run(test)


def test_a_message_that_does_not_come_ends_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_limits, "REQUEST_SECONDS_MAX", 0.05)

    async def test() -> None:
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            call = stub.channel.stream_unary("/penstock.v1.Penstock/Produce")()
            assert (await call.code()).name == "DEADLINE_EXCEEDED"
            unknown = stub.channel.unary_unary("/penstock.v1.Penstock/Other")
            assert (await status_of(unknown(b"")))[0] == "UNIMPLEMENTED"
            empty = stub.channel.stream_unary("/penstock.v1.Penstock/Fetch")(iter(()))
            assert (await status_of(empty))[0] == "INVALID_ARGUMENT"

    run(test)


def test_a_defect_ends_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        pb = generated()
        request = pb.GetTopicMetadataRequest(topics=["t"])
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            with monkeypatch.context() as patch:
                patch.setattr(NodeGatewayBroker, "topic_states", lambda *_: 1 / 0)
                status, message, _ = await status_of(stub.GetTopicMetadata(request))
            assert status == "INTERNAL"
            assert "division" not in message
            await stub.GetTopicMetadata(request)

    run(test)


def test_a_client_above_its_quota_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []

    async def throttle(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(gateway_calls, "_throttle", throttle)

    async def test() -> None:
        pb = generated()
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            request = pb.ProduceRequest(topic="t", records=[pb.Record(value=b"x" * 100_000)])
            await stub.Produce(request)
            assert waits == [0.0]
            quotas = broker._running.services.quotas
            entity = QuotaEntity((("client-id", "penstock-grpc"),))
            quotas.put(entity, {"producer_byte_rate": 1_000.0, "consumer_byte_rate": 1_000.0})
            await stub.Produce(request)
            await stub.Fetch(pb.FetchRequest(topic="t", offset=0))
            assert waits[1] > 1
            assert waits[2] > 1

    run(test)


# --- Proven logins ---


def starter(group: asyncio.TaskGroup) -> Start:
    """Return the function that starts work in a group."""

    def start(work: Coroutine[object, object, None]) -> None:
        group.create_task(work)

    return start


class Checks:
    """Checks of credentials that end when the test lets them."""

    def __init__(self) -> None:
        self.count = 0
        self.go = asyncio.Event()
        self.lifetime: float | None = None
        self.is_wrong = False

    async def check(self) -> Admitted:
        self.count += 1
        await self.go.wait()
        if self.is_wrong:
            raise PushRefusedError(Refusal(error="no", code="SASL_AUTHENTICATION_FAILED"))
        return Admitted(f"client {self.count}", self.lifetime)


def test_proven_logins_are_remembered_for_a_while() -> None:
    async def test() -> None:
        now = 0.0
        async with asyncio.TaskGroup() as group:
            memory = LoginMemory(
                lambda: now,
                starter(group),
                seconds_max=60,
                count_max=2,
            )
            checks = Checks()
            both = [group.create_task(memory.prove("a", "Basic x", checks.check)) for _ in range(5)]
            await asyncio.sleep(0)
            both[0].cancel()
            checks.go.set()
            assert {(await one).client for one in both[1:]} == {"client 1"}
            now = 59.0
            await memory.prove("a", "Basic x", checks.check)
            assert checks.count == 1
            now = 60.0
            await memory.prove("a", "Basic x", checks.check)
            await memory.prove("b", "Basic x", checks.check)
            await memory.prove("a", "Basic y", checks.check)
            assert (checks.count, len(memory)) == (4, 2)
            checks.lifetime = 5.0
            assert (await memory.prove("c", "Bearer t", checks.check)).lifetime_seconds == 5.0
            now = 63.0
            assert (await memory.prove("c", "Bearer t", checks.check)).lifetime_seconds == 2.0
            now = 65.0
            await memory.prove("c", "Bearer t", checks.check)
            assert checks.count == 6
            assert b"Bearer" not in repr(memory._proven).encode()

    run(test)


def test_a_changed_password_is_checked_at_once() -> None:
    async def test() -> None:
        versions = iter((1, 1, 1, 2))
        async with asyncio.TaskGroup() as group:
            memory = LoginMemory(lambda: 0.0, starter(group))
            checks = Checks()
            checks.go.set()
            for expected in (1, 1, 1, 2):
                await memory.prove("a", "Basic x", checks.check, lambda: next(versions))
                assert checks.count == expected

    run(test)


def test_checks_of_calls_that_are_gone_are_bounded() -> None:
    """A call that is cancelled does not end its check: new ones must not pile up."""

    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            memory = LoginMemory(lambda: 0.0, starter(group))
            checks = Checks()

            async def give_up(address: str, number: int) -> None:
                call = group.create_task(memory.prove(address, f"Basic {number}", checks.check))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                call.cancel()

            for number in range(gateway_limits.CHECKS_PER_ADDRESS_MAX):
                await give_up(f"2001:db8::{number:x}", number)
            with pytest.raises(GatewayRefusalError) as refused:
                await memory.prove("2001:db8::ffff", "Basic more", checks.check)
            assert refused.value.retriable
            hosts = gateway_limits.CHECKS_MAX // gateway_limits.CHECKS_PER_ADDRESS_MAX
            for host in range(1, hosts):
                for number in range(gateway_limits.CHECKS_PER_ADDRESS_MAX):
                    await give_up(f"10.0.0.{host}", number)
            with pytest.raises(GatewayRefusalError):
                await memory.prove("10.0.1.1", "Basic x", checks.check)
            checks.go.set()
            while memory._checks:  # noqa: ASYNC110 (any state of the memory)
                await asyncio.sleep(0)
            await memory.prove("2001:db8::ffff", "Basic more", checks.check)
            assert not memory._by_host

    run(test)


def test_a_failed_login_is_not_remembered() -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            memory = LoginMemory(lambda: 0.0, starter(group))
            checks = Checks()
            checks.go.set()
            checks.is_wrong = True
            for expected in (1, 2):
                with pytest.raises(PushRefusedError):
                    await memory.prove("a", "Basic x", checks.check)
                assert (checks.count, len(memory)) == (expected, 0)

    run(test)


def test_a_broker_without_the_setting_imports_nothing_of_it() -> None:
    code = """
import asyncio, sys
from penstock import BrokerServer
from penstock.core.settings.config import load_settings
text = '[node]\\nstorage = "memory"\\n[listener]\\nport = 0\\n[edge]\\npush_port = 0\\n'
async def main():
    async with BrokerServer(load_settings(text, {}, {"admin.enabled": False}).settings):
        pass
asyncio.run(main())
print([name for name in sys.modules if "grpc" in name])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_fixed_identity_of_a_listener_is_not_counted() -> None:
    text = """
    [node]
    storage = "memory"
    [[listeners]]
    name = "TEST"
    protocol = "PLAINTEXT"
    host = "127.0.0.1"
    port = 0
    principal = "User:test"
    [edge]
    grpc_port = 0
    sessions_per_principal_max = 1
    """

    async def test() -> None:
        pb = generated()
        async with grpc_broker(text) as broker, grpc_stub(broker) as stub:
            payload = write_object({"topic": "t"})
            frames = pb.Frames(data=encode_frame(FrameType.SUBSCRIBE, 1, payload))
            calls = [stub.Session() for _ in range(2)]
            for call in calls:
                await call.write(frames)
                assert b'"subscription"' in (await call.read()).data
            for call in calls:
                call.cancel()

    run(test)


def test_sessions_of_one_identity_are_bounded(tmp_path: Path) -> None:
    async def test() -> None:
        pb = generated()
        text = sasl_settings(tmp_path).replace(
            "grpc_port = 0", "grpc_port = 0\nsessions_per_principal_max = 1"
        )
        async with grpc_broker(text) as broker, grpc_stub(broker) as stub:
            payload = write_object({"topic": "t"})
            frames = pb.Frames(data=encode_frame(FrameType.SUBSCRIBE, 1, payload))
            first = stub.Session(metadata=basic())
            await first.write(frames)
            assert b'"subscription"' in (await first.read()).data
            second = stub.Session(metadata=basic())
            assert b"sessions_per_principal_max" in (await second.read()).data
            assert await second.read() == grpc.aio.EOF
            first.cancel()

    run(test)
