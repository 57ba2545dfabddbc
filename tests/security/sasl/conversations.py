"""Logins as conversations, written once and carried on with Apache Kafka and with `SaslExchange`.

A conversation is a function that sends frames through a `Talk`, which notes each answer as one
line: error code, text, lifetime, end of the connection. Values that differ from run to run (nonces,
salts, tokens) are checked here and noted by their kind. `WIRES` of a run are a listener whose
sessions end after `SESSION_MS` and a listener without such an end.
"""

import base64
import contextlib
import dataclasses
import hashlib
import hmac
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.security.sasl_client import BearerClient, PlainClient, SaslClient, ScramClient
from penstock.security.scram_credential import salted_password
from penstock.security.secret import Secret
from tests.oracle.secured_kafka import (
    HARD_USER,
    OAUTHBEARER,
    PASSWORDS,
    PLAIN,
    SCRAM_256,
    SCRAM_512,
    USER,
)

SESSION_MS: Final = 60_000
NONCE: Final = "fyko+d2lbbFgONRv9qkxdawL"


class Wire(Protocol):
    """One connection: frames in both directions, and the time."""

    def send(self, frame: bytes) -> None:
        """Send a frame without its length."""
        ...

    def receive(self) -> bytes | None:
        """The next frame; None when the connection is closed."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def token(self, subject: str, lifetime_seconds: float) -> str:
        """A token that the broker accepts until it expires; an empty subject: one it refuses."""
        ...


class ClosedError(Exception):
    """The connection is closed."""


@dataclasses.dataclass
class Talk:
    """A client that notes what it sees."""

    wire: Wire
    lines: list[str] = dataclasses.field(default_factory=list)

    def note(self, text: str) -> None:
        self.lines.append(text)

    def request(self, message: codec.Message, version: int, sent_version: int | None = None) -> Any:  # noqa: ANN401 - the answer of any API
        """The answer to a request; `sent_version` is only in the header."""
        api_key: int = vars(type(message))["API_KEY"]
        shown = version if sent_version is None else sent_version
        self._name = f"{type(message).__name__.removesuffix('Request')} v{shown}"
        head = headers.write_request_head(api_key, shown, 7, "conversation")
        self.wire.send(head + codec.encode_request(message, version))
        frame = memoryview(self._frame(self._name))
        assert headers.read_correlation_id(frame) == 7
        body = frame[headers.response_body_start(api_key, version, frame) :]
        if api_key == ApiKey.API_VERSIONS and bytes(body[:2]) == b"\x00\x23":
            version = 0
        return codec.decode_response(api_key, version, body)

    def _frame(self, name: str) -> bytes:
        frame = self.wire.receive()
        if frame is None:
            self.note(f"{name} -> closed")
            raise ClosedError
        return frame

    def versions(self, version: int = 3, *, sent: int | None = None, name: str = "java") -> None:
        message = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        answer = self.request(message, version, sent)
        count = "all APIs" if len(answer.api_keys) > 10 else f"{len(answer.api_keys)} APIs"
        self.note(f"{self._name} -> {int(answer.error_code)}, {count}")

    def handshake(self, mechanism: str, version: int = 1) -> None:
        answer = self.request(SaslHandshakeRequest(mechanism=mechanism), version)
        offered = " ".join(sorted(answer.mechanisms))
        self.note(f"{self._name} {mechanism} -> {int(answer.error_code)}, [{offered}]")

    def authenticate(self, token: bytes, version: int = 2) -> bytes:
        answer = self.request(SaslAuthenticateRequest(auth_bytes=token), version)
        lifetime_ms = answer.session_lifetime_ms
        lifetime = f"about {round(lifetime_ms / 10_000) * 10} s"
        if lifetime_ms in (0, SESSION_MS):
            lifetime = f"{lifetime_ms} ms"
        self.note(
            f"{self._name} -> {int(answer.error_code)}, {answer.error_message!r}, {lifetime}, "
            f"{shown(answer.auth_bytes)}"
        )
        if answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            self.end()
        return bytes(answer.auth_bytes)

    def raw(self, token: bytes) -> bytes:
        self.wire.send(token)
        answer = self._frame("token")
        self.note(f"token -> {shown(answer)}")
        return answer

    def groups(self) -> None:
        answer = self.request(ListGroupsRequest(), 4)
        self.note(f"{self._name} -> {int(answer.error_code)}")

    def wait(self, seconds: float) -> None:
        self.wire.wait(seconds)

    def end(self) -> None:
        """Whether the broker closes by itself, within the time of a delay."""
        self._frame("nothing")
        raise AssertionError("an answer to nothing")

    def login(self, mechanism: str, user: str = USER, *, is_raw: bool = False) -> None:
        """A whole login with the right credential."""
        self.handshake(mechanism, 0 if is_raw else 1)
        send = self.raw if is_raw else self.authenticate
        client = client_of(self, mechanism, user)
        token: bytes | None = client.first()
        while token is not None:
            token = client.respond(send(token))


def client_of(talk: Talk, mechanism: str, user: str = USER, password: str = "") -> SaslClient:
    if mechanism == OAUTHBEARER:
        return BearerClient(Secret(talk.wire.token(user, 300.5)))
    secret = Secret(password or PASSWORDS[mechanism][user])
    if mechanism == PLAIN:
        return PlainClient(user, secret)
    return ScramClient(mechanism, user, secret, NONCE)


def shown(token: bytes) -> str:
    """A token of the broker, without the values that differ from run to run."""
    if not token:
        return "no token"
    text = token.decode()
    if text.startswith("r="):
        nonce, salt, iterations = text.split(",")
        assert nonce.startswith(f"r={NONCE}")
        assert salt.startswith("s=")
        return f"challenge {iterations}"
    return "signature" if text.startswith("v=") else text


Conversation = Callable[[Talk], None]
CONVERSATIONS: Final[dict[str, Conversation]] = {}
ENDLESS: Final[set[str]] = set()
"""Conversations on the listener whose sessions have no end."""


def conversation(function: Conversation) -> Conversation:
    CONVERSATIONS[function.__name__] = function
    return function


def endless(function: Conversation) -> Conversation:
    ENDLESS.add(function.__name__)
    return conversation(function)


def held(wire: Wire, name: str) -> list[str]:
    """The lines of a conversation."""
    talk = Talk(wire)
    with contextlib.suppress(ClosedError):
        CONVERSATIONS[name](talk)
    return talk.lines


# --- Before the mechanism is chosen ---


@conversation
def versions_then_login(talk: Talk) -> None:
    talk.versions()
    talk.login(PLAIN)
    talk.versions()
    talk.groups()


@conversation
def versions_twice(talk: Talk) -> None:
    talk.versions()
    talk.versions()


@conversation
def unknown_version_of_versions(talk: Talk) -> None:
    talk.versions(sent=99)
    talk.versions(sent=98)
    talk.versions()
    talk.login(PLAIN)


@conversation
def bad_software_name(talk: Talk) -> None:
    talk.versions(name="-bad-")
    talk.versions()
    talk.login(PLAIN)


@conversation
def another_api_first(talk: Talk) -> None:
    talk.groups()


@conversation
def another_api_after_versions(talk: Talk) -> None:
    talk.versions()
    talk.groups()


@conversation
def authenticate_first(talk: Talk) -> None:
    talk.authenticate(b"\0a\0b")


@conversation
def bytes_that_are_no_request(talk: Talk) -> None:
    talk.raw(b"GET / HTTP/1.1\r\n\r\n")


@conversation
def handshake_with_a_bad_body(talk: Talk) -> None:
    head = headers.write_request_head(ApiKey.SASL_HANDSHAKE, 1, 7, None)
    talk.raw(head + struct.pack(">h", 500) + b"PLAIN")


@conversation
def unknown_mechanism(talk: Talk) -> None:
    talk.handshake("GSSAPI")
    talk.end()


@conversation
def mechanism_in_lower_case(talk: Talk) -> None:
    talk.handshake("plain")
    talk.end()


# --- During the login ---


@conversation
def handshake_twice(talk: Talk) -> None:
    talk.handshake(PLAIN)
    talk.handshake(PLAIN)
    talk.end()


@conversation
def another_api_during_the_login(talk: Talk) -> None:
    talk.handshake(PLAIN)
    talk.groups()
    talk.end()


@conversation
def another_api_between_two_tokens(talk: Talk) -> None:
    talk.handshake(SCRAM_256)
    talk.authenticate(client_of(talk, SCRAM_256).first())
    talk.groups()
    talk.end()


@conversation
def unknown_version_of_authenticate(talk: Talk) -> None:
    talk.handshake(PLAIN)
    talk.request(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2, 3)


# --- PLAIN ---


@conversation
def plain_version_0(talk: Talk) -> None:
    talk.handshake(PLAIN)
    talk.authenticate(client_of(talk, PLAIN).first(), 0)
    talk.groups()


@conversation
def plain_version_1(talk: Talk) -> None:
    talk.handshake(PLAIN)
    talk.authenticate(client_of(talk, PLAIN).first(), 1)
    talk.groups()


@endless
def plain_without_an_end(talk: Talk) -> None:
    talk.login(PLAIN, HARD_USER)
    talk.groups()


@conversation
def plain_raw(talk: Talk) -> None:
    talk.login(PLAIN, is_raw=True)
    talk.groups()


def _refused(name: str, mechanism: str, *tokens: bytes, version: int = 2) -> None:
    def talk_of(talk: Talk) -> None:
        talk.handshake(mechanism)
        for token in tokens:
            talk.authenticate(token, version)
        talk.end()

    talk_of.__name__ = name
    conversation(talk_of)


_RIGHT = PASSWORDS[PLAIN][USER].encode()
_refused("plain_wrong_password", PLAIN, b"\0alice\0wrong")
_refused("plain_wrong_password_version_0", PLAIN, b"\0alice\0wrong", version=0)
_refused("plain_unknown_user", PLAIN, b"\0nobody\0wrong")
_refused("plain_no_user", PLAIN, b"\0\0secret")
_refused("plain_no_password", PLAIN, b"\0alice\0")
_refused("plain_neither", PLAIN, b"\0\0")
_refused("plain_nothing", PLAIN, b"")
_refused("plain_two_parts", PLAIN, b"alice\0secret")
_refused("plain_four_parts", PLAIN, b"\0alice\0secret\0")
_refused("plain_nine_parts", PLAIN, b"\0" * 8)
_refused("plain_for_another", PLAIN, b"bob\0alice\0" + _RIGHT)
_refused("plain_for_another_wrong_password", PLAIN, b"bob\0alice\0wrong")
_refused("plain_not_utf_8", PLAIN, b"\0al\xffice\0" + _RIGHT)
_refused("plain_long_password", PLAIN, b"\0alice\0" + b"x" * 256)
_refused("plain_long_user", PLAIN, b"\0" + b"a" * 300 + b"\0wrong")


@conversation
def plain_for_itself(talk: Talk) -> None:
    talk.handshake(PLAIN)
    talk.authenticate(b"alice\0alice\0" + _RIGHT)
    talk.groups()


@conversation
def plain_raw_wrong_password(talk: Talk) -> None:
    talk.handshake(PLAIN, 0)
    talk.raw(b"\0alice\0wrong")


# --- SCRAM ---


@conversation
def scram_256(talk: Talk) -> None:
    talk.login(SCRAM_256)
    talk.groups()


@conversation
def scram_512_with_a_hard_name(talk: Talk) -> None:
    talk.login(SCRAM_512, HARD_USER)
    talk.groups()


@conversation
def scram_raw(talk: Talk) -> None:
    talk.login(SCRAM_512, is_raw=True)
    talk.groups()


@conversation
def scram_wrong_password(talk: Talk) -> None:
    talk.handshake(SCRAM_256)
    client = client_of(talk, SCRAM_256, password="wrong")
    talk.authenticate(client.respond(talk.authenticate(client.first())) or b"")
    talk.end()


@conversation
def scram_raw_wrong_password(talk: Talk) -> None:
    talk.handshake(SCRAM_256, 0)
    client = client_of(talk, SCRAM_256, password="wrong")
    talk.raw(client.respond(talk.raw(client.first())) or b"")


@conversation
def scram_unknown_user(talk: Talk) -> None:
    talk.handshake(SCRAM_256)
    client = ScramClient(SCRAM_256, "nobody", Secret("wrong"), NONCE)
    proof = client.respond(talk.authenticate(client.first()))
    assert proof is not None
    talk.authenticate(proof)
    talk.end()


_FIRST = f"n=alice,r={NONCE}"
_refused("scram_nothing", SCRAM_256, b"")
_refused("scram_bad_first", SCRAM_256, b"n,,alice")
_refused("scram_with_a_binding", SCRAM_256, f"p=tls-unique,,{_FIRST}".encode())
_refused("scram_not_ascii", SCRAM_256, f"n,,n=älice,r={NONCE}".encode())
_refused("scram_bad_escape", SCRAM_256, f"n,,n=a=lice,r={NONCE}".encode())
_refused("scram_for_another", SCRAM_256, f"n,a=bob,{_FIRST}".encode())
_refused("scram_delegation_token", SCRAM_256, f"n,,{_FIRST},tokenauth=true".encode())
_refused("scram_nonce_with_a_space", SCRAM_256, b"n,,n=alice,r=a b")


def final_message(
    bare: str, challenge: bytes, binding: bytes = b"n,,", more_nonce: str = "", extensions: str = ""
) -> bytes:
    """A final message with a right proof: the client has the password and signs what it sends."""
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
    password = Secret(PASSWORDS[SCRAM_256][USER])
    salted = salted_password(SCRAM_256, password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = (
        f"c={base64.b64encode(binding).decode()},r={more_nonce}{fields['r']}{extensions}"
    )
    signed = f"{bare},{challenge.decode()},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def _scram(
    name: str,
    header: str = "n,,",
    bare: str = _FIRST,
    changed: Callable[[bytes], bytes] = bytes,
    binding: bytes = b"n,,",
    more_nonce: str = "",
    extensions: str = "",
) -> None:
    """A login with SCRAM with another first or final message; `changed` is not signed."""

    def talk_of(talk: Talk) -> None:
        talk.handshake(SCRAM_256)
        challenge = talk.authenticate(f"{header}{bare}".encode())
        talk.authenticate(changed(final_message(bare, challenge, binding, more_nonce, extensions)))
        talk.groups()

    talk_of.__name__ = name
    conversation(talk_of)


_scram("scram_signed_here")
_scram("scram_for_itself", "n,a=alice,", binding=b"n,a=alice,")
_scram("scram_unknown_extension", bare=f"{_FIRST},future=1")
_scram("scram_delegation_token_off", bare=f"{_FIRST},tokenauth=false")
_scram("scram_extension_in_the_final_message", extensions=",future=1")
_scram("scram_longer_nonce", more_nonce="x")
_scram("scram_doubled_nonce", more_nonce=NONCE)
_scram("scram_binding_of_another_header", binding=b"y,,")
_scram("scram_binding_of_nothing", binding=b"")
_scram("scram_binding_believed_missing", "y,,", binding=b"y,,")
_scram("scram_mandatory_extension", "n,,m=1,")
_scram("scram_bad_final", changed=lambda final: final.replace(b",p=", b",q="))
_scram("scram_short_proof", changed=lambda final: final.partition(b",p=")[0] + b",p=AAAA")
_scram("scram_empty_final", changed=lambda _final: b"")


# --- OAUTHBEARER ---


@endless
def bearer(talk: Talk) -> None:
    talk.login(OAUTHBEARER)
    talk.groups()


@conversation
def bearer_in_a_shorter_session(talk: Talk) -> None:
    talk.login(OAUTHBEARER)
    talk.groups()


@conversation
def bearer_raw(talk: Talk) -> None:
    talk.handshake(OAUTHBEARER, 0)
    talk.raw(client_of(talk, OAUTHBEARER).first())
    talk.groups()


@conversation
def bearer_bad_token(talk: Talk) -> None:
    talk.handshake(OAUTHBEARER)
    talk.authenticate(client_of(talk, OAUTHBEARER, "").first())
    talk.authenticate(b"\x01")
    talk.end()


@conversation
def bearer_raw_bad_token(talk: Talk) -> None:
    talk.handshake(OAUTHBEARER, 0)
    talk.raw(client_of(talk, OAUTHBEARER, "").first())
    talk.raw(b"\x01")


@conversation
def bearer_bad_token_then_nonsense(talk: Talk) -> None:
    talk.handshake(OAUTHBEARER)
    talk.authenticate(client_of(talk, OAUTHBEARER, "").first())
    talk.authenticate(b"nonsense")
    talk.end()


@conversation
def bearer_bad_token_then_a_good_one(talk: Talk) -> None:
    talk.handshake(OAUTHBEARER)
    talk.authenticate(client_of(talk, OAUTHBEARER, "").first())
    talk.authenticate(client_of(talk, OAUTHBEARER).first())
    talk.groups()


def _bearer(name: str, form: str) -> None:
    """A message with a good token in this form."""

    def talk_of(talk: Talk) -> None:
        talk.handshake(OAUTHBEARER)
        message = form.format(token=talk.wire.token(USER, 300.5))
        talk.authenticate(message.encode())
        talk.groups()

    talk_of.__name__ = name
    conversation(talk_of)


_bearer("bearer_for_itself", "n,a=alice,\x01auth=Bearer {token}\x01\x01")
_bearer("bearer_for_another", "n,a=bob,\x01auth=Bearer {token}\x01\x01")
_bearer("bearer_with_extensions", "n,,\x01auth=Bearer {token}\x01trace=1 2\x01team=x\x01\x01")
_bearer("bearer_in_lower_case", "n,,\x01auth=bearer  {token}\x01\x01")
_bearer("bearer_other_scheme", "n,,\x01auth=Basic {token}\x01\x01")
_bearer("bearer_without_token", "n,,\x01team=x\x01\x01")
_bearer("bearer_without_pairs", "n,,\x01\x01")
_bearer("bearer_without_end", "n,,\x01auth=Bearer {token}\x01")
_bearer("bearer_with_a_binding", "p=tls-unique,,\x01auth=Bearer {token}\x01\x01")
_bearer("bearer_binding_believed_missing", "y,,\x01auth=Bearer {token}\x01\x01")
_bearer("bearer_bad_extension_name", "n,,\x01auth=Bearer {token}\x01team-1=x\x01\x01")
_bearer("bearer_empty_extension", "n,,\x01auth=Bearer {token}\x01team=\x01\x01")
_bearer("bearer_two_tokens", "n,,\x01auth=Bearer x\x01auth=Bearer {token}\x01\x01")


# --- Behind the login ---


@endless
def second_login_without_an_end(talk: Talk) -> None:
    talk.login(PLAIN)
    talk.handshake(PLAIN)
    talk.authenticate(b"\0alice\0wrong")
    talk.authenticate(b"\0alice\0wrong", 0)
    talk.handshake("unknown", 0)
    talk.groups()


@conversation
def authenticate_after_the_login(talk: Talk) -> None:
    talk.login(PLAIN)
    talk.authenticate(b"\0alice\0wrong")
    talk.groups()


@conversation
def renewals(talk: Talk) -> None:
    talk.login(SCRAM_256)
    talk.login(SCRAM_256)
    talk.handshake(SCRAM_256)
    talk.groups()
    talk.wait(1.1)
    talk.login(SCRAM_256)
    talk.groups()


@conversation
def renewal_with_raw_tokens(talk: Talk) -> None:
    talk.login(PLAIN)
    talk.login(PLAIN, is_raw=True)
    talk.groups()


@conversation
def renewal_with_another_mechanism(talk: Talk) -> None:
    talk.login(PLAIN)
    talk.handshake(SCRAM_256)
    talk.authenticate(client_of(talk, SCRAM_256).first())


@conversation
def renewal_with_an_unknown_mechanism(talk: Talk) -> None:
    talk.login(PLAIN)
    talk.handshake("GSSAPI")
    talk.end()


@conversation
def renewal_of_another_user(talk: Talk) -> None:
    talk.login(PLAIN)
    talk.handshake(PLAIN)
    talk.authenticate(client_of(talk, PLAIN, HARD_USER).first())
    talk.end()


@conversation
def renewal_with_a_wrong_password(talk: Talk) -> None:
    talk.login(SCRAM_512)
    talk.handshake(SCRAM_512)
    client = client_of(talk, SCRAM_512, password="wrong")
    talk.authenticate(client.respond(talk.authenticate(client.first())) or b"")
    talk.end()


@conversation
def another_api_during_a_renewal(talk: Talk) -> None:
    talk.login(PLAIN)
    talk.handshake(PLAIN)
    talk.groups()
    talk.end()


@conversation
def versions_during_a_renewal(talk: Talk) -> None:
    talk.login(PLAIN)
    talk.handshake(PLAIN)
    talk.versions()
    talk.end()


@endless
def a_token_within_the_skew(talk: Talk) -> None:
    talk.handshake(OAUTHBEARER)
    talk.authenticate(BearerClient(Secret(talk.wire.token(USER, -10))).first())
    talk.wait(0.1)
    talk.groups()


@endless
def an_expired_session(talk: Talk) -> None:
    talk.handshake(OAUTHBEARER)
    talk.authenticate(BearerClient(Secret(talk.wire.token(USER, 1.5))).first())
    talk.groups()
    talk.wait(2.5)
    talk.groups()


@endless
def a_renewal_of_an_expired_session(talk: Talk) -> None:
    talk.handshake(OAUTHBEARER)
    talk.authenticate(BearerClient(Secret(talk.wire.token(USER, -10))).first())
    talk.wait(0.1)
    talk.login(OAUTHBEARER)
    talk.groups()


@endless
def a_refused_renewal_of_an_expired_session(talk: Talk) -> None:
    talk.handshake(OAUTHBEARER)
    talk.authenticate(BearerClient(Secret(talk.wire.token(USER, -10))).first())
    talk.handshake(OAUTHBEARER)
    talk.authenticate(BearerClient(Secret(talk.wire.token(USER, -10))).first())
    talk.wait(0.1)
    talk.handshake(OAUTHBEARER)
