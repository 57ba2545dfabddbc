"""Requests of commands to the admin port of a broker: HTTP, with the settings of a client.

The file of `--command-config` that opens a listener opens the admin port too: its authorities
verify the certificate of the port, its certificate is the identity for `admin.auth` `mtls`, and its
user and password, or its token, are sent if the port asks for them.

Guarantees: a password or a token is sent only after the port has asked for one, over TLS or to
this machine, and never to another address: redirects and proxies are not followed. Answers are
bounded. Each failure has a message with the next step. Texts of the other side are printed without
control characters. This module does NOT know the operations of the admin port.
"""

import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import click

from penstock.cli.options import (
    TIMEOUT_SECONDS,
    Command,
    WrongUsageError,
    command_config_option,
)
from penstock.core.errors import (
    AdminUnreachableError,
    AuthenticationError,
    ClientError,
    MalformedResponseError,
    TlsHandshakeError,
)

if TYPE_CHECKING:
    from email.message import Message
    from ssl import SSLContext, SSLError
    from urllib.parse import SplitResult
    from urllib.request import OpenerDirector

    from penstock.client.security.options import Security

Document = dict[str, Any]

ADMIN_URL_DEFAULT: Final = "http://127.0.0.1:8080"
ADMIN_URL_VARIABLE: Final = "PENSTOCK_ADMIN_URL"
ANSWER_BYTES_MAX: Final = 1_048_576
PROBLEM_CHARACTERS_MAX: Final = 2_000
ADMIN_HINT: Final = (
    f"Give the admin port, which a broker logs when it starts: --admin {ADMIN_URL_DEFAULT}"
)
_ADDRESS: Final = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}")
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
_FILE: Final = "Give a file with --command-config that has"
_WITH_PASSWORD: Final = (
    f"{_FILE} security.protocol=SASL_SSL, sasl.mechanism=PLAIN, sasl.username and sasl.password."
)
_WITH_TOKEN: Final = (
    f"{_FILE} security.protocol=SASL_SSL, sasl.mechanism=OAUTHBEARER and the settings "
    "sasl.oauthbearer.* of your identity provider."
)
_WITH_CERTIFICATE: Final = (
    f"{_FILE} security.protocol=SSL, ssl.certificate.location and ssl.key.location, or "
    "ssl.keystore.location."
)


class AdminRefusedError(ClientError):
    """The admin port answered that it does not carry out the request."""


def admin_option(command: Command) -> Command:
    """Add the option `--admin`."""
    return click.option(
        "--admin",
        "url",
        default=ADMIN_URL_DEFAULT,
        envvar=ADMIN_URL_VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="Admin port of the broker.",
    )(command)


def port_options(command: Command) -> Command:
    """Add the options of a connection to the admin port."""
    timeout = click.option(
        "--timeout",
        "timeout_seconds",
        type=TIMEOUT_SECONDS,
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="Time for each answer.",
    )
    return admin_option(command_config_option(timeout(command)))


def open_admin_port(url: str, timeout_seconds: float) -> "AdminPort":
    """Return the admin port at this address, with the settings of the running command."""
    from penstock.cli.client_settings import client_settings

    _check_url(url)
    return AdminPort(url, client_settings().security, timeout_seconds=timeout_seconds)


def _check_url(url: str) -> None:
    """Raise a usage error for an invalid address, before any request is sent."""
    from urllib.parse import urlsplit

    if "@" in url:
        raise WrongUsageError(
            "--admin has a user or a password, which other users of this machine can read.",
            hint=_WITH_PASSWORD,
        )
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        is_url = parts.scheme in {"http", "https"} and bool(host) and parts.port != 0
    except ValueError:  # a port that is not a number, or an unpaired bracket
        is_url = False
    if not is_url or not url.isascii() or not url.isprintable() or " " in url:
        raise WrongUsageError(
            f"--admin: {url!r} is not a URL such as {ADMIN_URL_DEFAULT}.",
            hint=f"Use http://{url}." if _ADDRESS.fullmatch(url) else ADMIN_HINT,
        )


class AdminPort:
    """The admin port at one address, with the security of the running command."""

    def __init__(self, url: str, security: "Security", *, timeout_seconds: float) -> None:
        """`timeout_seconds` is the time of each answer."""
        from urllib.parse import urlsplit

        self.url = url.rstrip("/")
        self._parts: SplitResult = urlsplit(url)
        self._security = security
        self._timeout_seconds = timeout_seconds

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return the body of a success; raise the error of every other answer.

        `body` is the JSON document of the request.
        """
        answer = self._send(method, path, None, body)
        if answer.status == 401 and (header := self._authorization(answer.challenge)):
            answer = self._send(method, path, header, body)
            if answer.status == 401:
                self._refused_credential(path)
        if answer.status == 401:
            self._missing_credential(path, answer.challenge)
        if not 200 <= answer.status < 300:
            self._problem(path, answer)
        if len(answer.body) > ANSWER_BYTES_MAX:
            raise MalformedResponseError(
                f"{self.url}{path} answers with more than {ANSWER_BYTES_MAX:,} bytes. Is it the "
                "admin port of a Penstock broker?",
                hint=ADMIN_HINT,
            )
        return answer.body

    def resource(self, path: str) -> "AdminResource":
        """Return the operations below a path, such as `/api/v1/pipes`."""
        return AdminResource(self, path)

    def _send(
        self, method: str, path: str, authorization: str | None, body: bytes | None
    ) -> "_Answer":
        import ssl
        from http.client import HTTPException, RemoteDisconnected
        from urllib.error import HTTPError
        from urllib.request import Request  # 40 ms to import

        asked = f"{self.url}{path}"
        request = Request(asked, body, method=method)  # noqa: S310 (its scheme is checked)
        if body is not None:
            request.add_unredirected_header("Content-Type", "application/json")
        if authorization is not None:
            request.add_unredirected_header("Authorization", authorization)
        try:
            with _opener(self._context()).open(request, timeout=self._timeout_seconds) as answer:
                return _Answer(answer.status, answer.headers, answer.read(ANSWER_BYTES_MAX + 1))
        except HTTPError as error:
            with error:
                return _Answer(error.code, error.headers, error.read(ANSWER_BYTES_MAX + 1))
        except HTTPException as error:
            if isinstance(error, RemoteDisconnected):
                raise self._unreachable(asked, error) from error
            raise MalformedResponseError(
                f"{asked} answers, but not in HTTP ({type(error).__name__}). Is it the admin port "
                "of a Penstock broker?",
                hint=ADMIN_HINT,
            ) from error
        except OSError as error:
            reason = error if isinstance(error, ssl.SSLError) else getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLError):
                raise self._tls_failure(asked, reason) from error
            raise self._unreachable(asked, reason) from error

    def _unreachable(self, asked: str, reason: object) -> AdminUnreachableError:
        """Return the error of a connection that failed; it may be reset instead of refused."""
        hint = ""
        if isinstance(reason, ConnectionResetError):
            hint = self._other_scheme()
            if not hint and (self._security.tls is None or self._security.tls.identity is None):
                hint = f"The admin port may require a client certificate. {_WITH_CERTIFICATE}"
        return AdminUnreachableError(f"{asked} is unreachable: {reason}.", hint=hint)

    def _context(self) -> "SSLContext | None":
        if self._parts.scheme != "https":
            return None
        from penstock.client.security.options import TlsOptions
        from penstock.client.security.tls import build_context

        return build_context(self._security.tls or TlsOptions())

    def _other_scheme(self) -> str:
        """Return a hint for a port that may have TLS."""
        if self._parts.scheme == "https":
            return ""
        return f"If the admin port has TLS (admin.certificate), use https://{self._parts.netloc}"

    def _tls_failure(self, asked: str, error: "SSLError") -> ClientError:
        from penstock.client.transport.addresses import Address
        from penstock.client.transport.tls_errors import tls_failure

        if error.reason in _NO_TLS:
            return TlsHandshakeError(
                f"{asked} does not answer in TLS.",
                hint=f"If the admin port has no TLS, use http://{self._parts.netloc}",
            )
        address = Address(self._parts.hostname or "", self._parts.port or 443)
        failure = tls_failure(address, error)
        if isinstance(failure, TlsHandshakeError):
            if failure.hint.startswith("Give "):
                failure.hint = f"{failure.hint.removesuffix('.')}, in the file of --command-config."
            return failure
        return AdminUnreachableError(f"{asked} closed the connection during the TLS handshake.")

    def _authorization(self, challenge: str) -> str | None:
        """Return the header that proves the identity; None if the settings have no such proof."""
        sasl = self._security.sasl
        if sasl is None or not self._may_send_secrets():
            return None
        if challenge == "basic" and sasl.password is not None:
            import base64

            if ":" in sasl.username:
                raise AuthenticationError(
                    f"the user {sasl.username!r} has a colon, which a login over HTTP cannot "
                    "carry.",
                    hint="Use a user without a colon for the admin port.",
                )
            pair = f"{sasl.username}:{sasl.password.reveal()}".encode()
            return f"Basic {base64.b64encode(pair).decode()}"
        if challenge == "bearer" and sasl.tokens is not None:
            from penstock.client.security.bearer import TOKENS

            return f"Bearer {TOKENS.token(sasl.tokens, self._security.tls).reveal()}"
        return None

    def _may_send_secrets(self) -> bool:
        return self._parts.scheme == "https" or self._is_local()

    def _is_local(self) -> bool:
        from penstock.core.loopback import is_loopback

        return is_loopback(self._parts.hostname or "")

    def _refused_credential(self, path: str) -> NoReturn:
        sasl = self._security.sasl
        assert sasl is not None
        if sasl.tokens is not None:
            raise AuthenticationError(
                f"{self.url}{path} refused the token of {sasl.tokens.client_id!r} (401).",
                hint="The log of the broker has the reason. Compare [oidc] of its settings, such "
                "as issuer and audience, with the token.",
            )
        raise AuthenticationError(
            f"{self.url}{path} refused the user {sasl.username!r} or the password (401).",
            hint="Check sasl.username and sasl.password. The admin port knows the users of "
            "security.plain_verifier; `penstock user list` shows those of the cluster.",
        )

    def _missing_credential(self, path: str, challenge: str) -> NoReturn:
        asked = f"{self.url}{path}"
        sasl = self._security.sasl
        if challenge in ("basic", "bearer") and sasl is not None and not self._may_send_secrets():
            raise AuthenticationError(
                f"{asked} asks for a {'password' if challenge == 'basic' else 'token'} (401), "
                "which is not sent to another machine without TLS.",
                hint=f"Set admin.certificate and admin.key of the broker, and use "
                f"https://{self._parts.netloc}",
            )
        what, hint = {
            "basic": ("a user and a password", _WITH_PASSWORD),
            "bearer": ("a token", _WITH_TOKEN),
        }.get(challenge, ("a client certificate that it trusts", _WITH_CERTIFICATE))
        given = "" if sasl is None else f", and the settings have {sasl.mechanism}"
        if challenge not in ("basic", "bearer"):
            given = ""
        raise AuthenticationError(f"{asked} asks for {what} (401){given}.", hint=hint)

    def _problem(self, path: str, answer: "_Answer") -> NoReturn:
        detail, remedy = answer.problem()
        asked = f"{self.url}{path}"
        if not detail:
            raise MalformedResponseError(
                f"{asked} answers {answer.status}. Is it the admin port of a Penstock broker?",
                hint=ADMIN_HINT,
            )
        if answer.status == 503:
            raise AdminUnreachableError(f"{asked}: {detail}", hint=remedy)
        raise AdminRefusedError(f"{asked}: {detail} ({answer.status})", hint=remedy)


class _Answer:
    """An answer over HTTP, of at most `ANSWER_BYTES_MAX` + 1 bytes."""

    def __init__(self, status: int, headers: "Message", body: bytes) -> None:
        self.status = status
        self.body = body
        self._headers = headers

    @property
    def challenge(self) -> str:
        """The kind of identity that the port asks for, such as `basic`; empty without one."""
        return str(self._headers.get("WWW-Authenticate") or "").partition(" ")[0].lower()

    def problem(self) -> tuple[str, str]:
        """Return the detail and the remedy of a problem; empty if the body is not a problem."""
        import json

        from penstock.core.quantities import printable

        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            return "", ""
        if not isinstance(document, dict):
            return "", ""
        texts = [document.get(name) for name in ("detail", "remedy")]
        detail, remedy = (
            printable(text)[:PROBLEM_CHARACTERS_MAX] if isinstance(text, str) else ""
            for text in texts
        )
        return detail, remedy


def _opener(context: "SSLContext | None") -> "OpenerDirector":
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, build_opener

    class NoRedirects(HTTPRedirectHandler):
        """Another address must not get the request: it may have a password."""

        def redirect_request(self, *_given: object) -> None:
            """Answer with the redirect itself."""

    # The admin port is local: a proxy for the internet does not know it.
    return build_opener(ProxyHandler({}), NoRedirects(), HTTPSHandler(context=context))


class AdminResource:
    """The operations of the admin port below one path, whose answers are JSON objects."""

    def __init__(self, port: AdminPort, path: str) -> None:
        self._port = port
        self._path = path

    def ask(self, method: str, path: str = "", body: Document | None = None) -> Document:
        """Return the document of an answer; empty for an answer without one."""
        sent = None if body is None else json.dumps(body).encode()
        data = self._port.ask(method, f"{self._path}{path}", sent)
        if not data:
            return {}
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self.malformed() from error
        if not isinstance(document, dict):
            raise self.malformed()
        return cast("Document", document)

    def field(self, document: Document, name: str, kind: type) -> Any:  # noqa: ANN401
        """Return a field of an answer, which has this type."""
        value = document.get(name)
        if not isinstance(value, kind):
            raise self.malformed()
        return value

    def malformed(self) -> MalformedResponseError:
        """Return the error for an answer of another server."""
        place = f"{self._port.url}{self._path}"
        return MalformedResponseError(
            f"{place} answers, but not as the admin port of a Penstock broker.", hint=ADMIN_HINT
        )
