"""A small OpenID Connect provider for tests: client credentials in, signed tokens out.

Guarantees: `TokenServer` listens on a free port of 127.0.0.1 in a thread. `POST /token` with the
client's id and secret (Basic authentication, or in the form) returns a JWT signed with RS256; a
wrong secret is answered with 401 `invalid_client`, as RFC 6749 says. `jwks()` has the public key,
and `GET /jwks` returns it. All requests are kept in `requests`. `token()` signs any claims without
HTTP, also those of an expired token.

It is NOT an OpenID Connect implementation: there are no users, scopes are copied as they came, and
the key never changes.
"""

import base64
import binascii
import dataclasses
import datetime
import functools
import hmac
import json
import ssl
import sys
import threading
import urllib.parse
from collections import deque
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.oracle.certificates import Identity, rsa_key
from tests.oracle.running_broker import HOST

ISSUER: Final = "https://issuer.penstock.test"
AUDIENCE: Final = "kafka"
KEY_ID: Final = "key-1"
CLIENT_ID: Final = "service-orders"
CLIENT_SECRET: Final = "s3cret/with+signs="
"""With signs that a form must escape."""

LIFETIME_SECONDS: Final = 300.0
BODY_BYTES_MAX: Final = 65_536


@dataclasses.dataclass(frozen=True)
class TokenRequest:
    """One request, as it came."""

    method: str
    path: str
    authorization: str
    form: dict[str, str]
    content_type: str


@dataclasses.dataclass(frozen=True)
class Answer:
    """A prepared answer, in place of a token."""

    status: int
    body: str


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _base64url_json(value: object) -> str:
    return _base64url(json.dumps(value, separators=(",", ":")).encode())


def _base64url_number(number: int) -> str:
    return _base64url(number.to_bytes((number.bit_length() + 7) // 8, "big"))


@functools.cache
def _signing_key() -> rsa.RSAPrivateKey:
    """One key for all servers of a process: a new one takes up to half a second."""
    return rsa_key()


class TokenServer:
    """The provider; a context manager that starts and stops it."""

    def __init__(
        self,
        *,
        client_id: str = CLIENT_ID,
        client_secret: str = CLIENT_SECRET,
        identity: Identity | None = None,
    ) -> None:
        """With `identity`, the certificate of a server, it speaks HTTPS."""
        self.client_id = client_id
        self.client_secret = client_secret
        self.lifetime_seconds = LIFETIME_SECONDS
        """How long the tokens of `POST /token` are valid, from now; tests change it."""
        self.subject = client_id
        """The claim `sub` of the tokens of `POST /token`: the principal's name in Kafka."""
        self.requests: list[TokenRequest] = []
        self.prepared: deque[Answer] = deque()
        """Answers for the next requests to `/token`, for tests of failures and retries."""
        self._key = _signing_key()
        self._server = _Server((HOST, 0), functools.partial(_Handler, self))
        self._scheme = "http"
        if identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(identity.chain, identity.key)
            # The handshake is the handler's: a client that fails at it must not stop the others.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """The address of the server, without a path."""
        return f"{self._scheme}://{HOST}:{self._server.server_address[1]}"

    @property
    def token_url(self) -> str:
        """The token endpoint."""
        return f"{self.url}/token"

    @property
    def jwks_url(self) -> str:
        """The key set endpoint."""
        return f"{self.url}/jwks"

    def jwks(self) -> str:
        """The key set as JSON, for a file that Apache Kafka reads."""
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": KEY_ID,
            "n": _base64url_number(numbers.n),
            "e": _base64url_number(numbers.e),
        }
        return json.dumps({"keys": [key]})

    def token(
        self,
        *,
        subject: str | None = None,
        lifetime_seconds: float | None = None,
        claims: dict[str, object] | None = None,
        key: rsa.RSAPrivateKey | None = None,
    ) -> str:
        """A signed token; a negative lifetime has expired, another key makes a forged one.

        `claims` replaces claims by name and leaves out those that are None.
        """
        lifetime = self.lifetime_seconds if lifetime_seconds is None else lifetime_seconds
        now = datetime.datetime.now(datetime.UTC).timestamp()
        issued = min(now, now + lifetime)
        chosen: dict[str, object] = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": self.subject if subject is None else subject,
            "iat": int(issued),
            "exp": int(now + lifetime),
            **(claims or {}),
        }
        present = {name: value for name, value in chosen.items() if value is not None}
        header = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        signed = f"{_base64url_json(header)}.{_base64url_json(present)}"
        signer = key or self._key
        signature = signer.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64url(signature)}"

    def answer(self, request: TokenRequest) -> Answer:
        """The answer to `POST /token`."""
        if self.prepared:
            return self.prepared.popleft()
        if not self._knows(request):
            return _refusal(HTTPStatus.UNAUTHORIZED, "invalid_client")
        if request.form.get("grant_type") != "client_credentials":
            return _refusal(HTTPStatus.BAD_REQUEST, "unsupported_grant_type")
        scope = request.form.get("scope")
        answer: dict[str, object] = {
            "access_token": self.token(claims={"scope": scope}),
            "token_type": "Bearer",
            "expires_in": int(self.lifetime_seconds),
        }
        if scope:
            answer["scope"] = scope
        return Answer(HTTPStatus.OK, json.dumps(answer))

    def _knows(self, request: TokenRequest) -> bool:
        scheme, _, encoded = request.authorization.partition(" ")
        if scheme.lower() == "basic":
            try:
                text = base64.b64decode(encoded, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                return False
            client_id, _, secret = text.partition(":")
            # RFC 6749, 2.3.1: both are form-encoded first. Kafka and librdkafka do not by default.
            pairs = {
                (client_id, secret),
                (urllib.parse.unquote_plus(client_id), urllib.parse.unquote_plus(secret)),
            }
        else:
            pairs = {(request.form.get("client_id", ""), request.form.get("client_secret", ""))}
        return any(
            client_id == self.client_id
            and hmac.compare_digest(secret.encode(), self.client_secret.encode())
            for client_id, secret in pairs
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _refusal(status: int, error: str) -> Answer:
    return Answer(status, json.dumps({"error": error, "error_description": f"test: {error}"}))


class _Server(ThreadingHTTPServer):
    """Threads for each connection, silent about clients that break off."""

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    timeout = 10
    """Seconds that an idle connection keeps its thread."""

    def __init__(self, owner: TokenServer, *arguments: object) -> None:
        self._owner = owner
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length") or 0), BODY_BYTES_MAX)
        text = self.rfile.read(length).decode(errors="replace")
        request = self._record(dict(urllib.parse.parse_qsl(text)))
        if urllib.parse.urlsplit(self.path).path == "/token":
            self._send(self._owner.answer(request))
        else:
            self._send(_refusal(HTTPStatus.NOT_FOUND, "not_found"))

    def do_GET(self) -> None:
        self._record({})
        if self.path == "/jwks":
            self._send(Answer(HTTPStatus.OK, self._owner.jwks()))
        else:
            self._send(_refusal(HTTPStatus.NOT_FOUND, "not_found"))

    def _record(self, form: dict[str, str]) -> TokenRequest:
        request = TokenRequest(
            method=self.command,
            path=self.path,
            authorization=self.headers.get("Authorization", ""),
            form=form,
            content_type=self.headers.get("Content-Type", ""),
        )
        self._owner.requests.append(request)
        return request

    def _send(self, answer: Answer) -> None:
        body = answer.body.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if answer.status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="tokens"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Nothing: `requests` has them."""
