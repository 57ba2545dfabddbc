"""The pure parts of the gRPC gateway: admission, statuses, names of peers, authorization."""

import base64
import random

import pytest

from penstock.core.settings.edge_settings import EdgeSettings
from penstock.edge.grpc_gateway.authorizations import credentials_in
from penstock.edge.grpc_gateway.call_admission import CallAdmission, MessageRoom
from penstock.edge.grpc_gateway.gateway_limits import CALLS_MAX, MESSAGE_BYTES_MAX
from penstock.edge.grpc_gateway.gateway_statuses import GatewayRefusalError, status_of
from penstock.edge.grpc_gateway.peer_names import address_of
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.push.payloads import Refusal

GRPC_STATUSES = {
    "INVALID_ARGUMENT",
    "INTERNAL",
    "UNAVAILABLE",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "DEADLINE_EXCEEDED",
    "OUT_OF_RANGE",
    "NOT_FOUND",
    "UNIMPLEMENTED",
    "PERMISSION_DENIED",
    "FAILED_PRECONDITION",
    "ABORTED",
}


def test_admission_bounds_all_calls_and_those_of_an_address() -> None:
    admission = CallAdmission(calls_max=5, per_address_max=3)
    rng = random.Random(4)
    open_calls: list[str] = []
    for _ in range(2_000):
        if open_calls and rng.random() < 0.5:
            admission.end(open_calls.pop(rng.randrange(len(open_calls))))
        else:
            address = rng.choice("abc")
            is_free = len(open_calls) < 5 and open_calls.count(address) < 3
            if is_free:
                admission.begin(address)
                open_calls.append(address)
            else:
                with pytest.raises(GatewayRefusalError) as found:
                    admission.begin(address)
                assert found.value.status == "RESOURCE_EXHAUSTED"
                assert found.value.retriable
        admission.validate()
        assert admission.count == len(open_calls)


def test_ipv6_addresses_of_one_network_have_the_calls_of_one_address() -> None:
    admission = CallAdmission(calls_max=9, per_address_max=2)
    for address in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"):
        admission.begin(address)
    with pytest.raises(GatewayRefusalError, match="2001:db8::3 has 2 calls"):
        admission.begin("2001:db8::3")
    for address in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"):
        admission.end(address)
    admission.validate()
    assert admission.count == 0


def test_a_thousand_sessions_of_small_messages_have_room() -> None:
    """The numbers of `edge.grpc_message_bytes_max` and of the guide."""
    room = MessageRoom()
    for _ in range(CALLS_MAX):
        room.change(262_144)
    assert EdgeSettings().grpc_message_bytes_max == MESSAGE_BYTES_MAX
    room = MessageRoom()
    for _ in range(240):
        room.change(MESSAGE_BYTES_MAX)
    with pytest.raises(GatewayRefusalError):
        room.change(MESSAGE_BYTES_MAX)


def test_messages_are_bounded_in_sum() -> None:
    room = MessageRoom(100)
    with room.share(60) as first:
        with pytest.raises(GatewayRefusalError, match="have 60 bytes, the limit is 100") as found:
            room.share(41).__enter__()
        assert (found.value.status, found.value.retriable) == ("RESOURCE_EXHAUSTED", True)
        first.resize(10)
        with room.share(90) as second:
            with pytest.raises(GatewayRefusalError):
                second.resize(91)
            second.resize(5)
            assert room.used_bytes == 15
        assert room.used_bytes == 10
    assert room.used_bytes == 0
    with room.share(1_000):  # A lone one has no smaller successor.
        pass
    assert room.used_bytes == 0


def test_each_error_of_kafka_has_a_status() -> None:
    for code in ErrorCode:
        refusal = Refusal(error="x", code=code.name, retriable=code.retriable)
        assert status_of(refusal) in GRPC_STATUSES
    assert status_of(Refusal(error="x", code="NEW_ERROR")) == "FAILED_PRECONDITION"
    assert status_of(Refusal(error="x", code="NEW_ERROR", retriable=True)) == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:4711", "192.0.2.1"),
        ("ipv6:%5B::1%5D:4711", "::1"),
        ("ipv6:[::1]:4711", "::1"),
        ("ipv6:%5B::ffff:192.0.2.1%5D:4711", "192.0.2.1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:4711", "fe80::1"),
        ("unix:/tmp/x", ""),
        ("", ""),
        ("ipv4:nonsense:1", ""),
    ],
)
def test_addresses_of_peers(peer: str, address: str) -> None:
    assert address_of(peer) == address


def test_authorizations() -> None:
    basic = base64.b64encode("ü:p:w".encode()).decode()
    found = credentials_in(f"Basic {basic}")
    assert (found.user, found.password, found.token) == ("ü", "p:w", None)
    assert credentials_in("bearer a.b.c").token == "a.b.c"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Basic",
        "Bearer ",
        "Digest x",
        "Basic secret!",
        "Basic c2VjcmV0",
        "Basic OnNlY3JldA==",
        "Basic /w==",
    ],
)
def test_wrong_authorizations_are_refused_without_the_secret(text: str) -> None:
    with pytest.raises(GatewayRefusalError) as found:
        credentials_in(text)
    assert found.value.status == "UNAUTHENTICATED"
    assert "secret" not in str(found.value)
