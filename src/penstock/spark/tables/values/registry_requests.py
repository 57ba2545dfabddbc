"""Requests to a schema registry, with the credentials of the moment.

Guarantees: credentials and certificates are read for each request, so that files of them may be
replaced while a pipeline runs. They are sent to the registry's own address only: a redirect to
another server is an error. The private key of a certificate never waits for a password at a
terminal. Errors hide credentials, in the encoding of a header too. An error says whether a later
attempt may succeed, and what to do.

It does NOT retry, and knows nothing of schemas.
"""

import base64
import http.client
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import IO, Final, NamedTuple

from penstock.spark.tables.definition import references
from penstock.spark.tables.definition.catalogs import REFERENCE
from penstock.spark.tables.definition.registry_section import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    KEY_WORD,
    TOKEN,
    USERNAME,
    WORD,
    is_loopback,
    user_of,
)

ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
SECTION: Final = "value.registry"
_ADDRESS: Final = "schema"
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_ERROR_BYTES_MAX: Final = 10_000
_CONFIGURED: Final = (TOKEN, USERNAME, CERTIFICATE)
_NETWORK: Final = (
    "Check value.schema, the registry and the network; the pipeline goes on where it was."
)
_CLIENT: Final = (
    "If the registry requires a client certificate, set value.registry.certificate and "
    "value.registry.key."
)


class Problem(NamedTuple):
    """A failed request."""

    text: str
    remedy: str
    may_pass: bool
    """Whether the same request may succeed a moment later."""


class RegistryRequests:
    """Sends requests to one registry."""

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        self.base = shown_address(address)
        """The address without a user."""
        self._address = address
        self._options = dict(options)
        self._context: tuple[object, ssl.SSLContext] | None = None

    def get(self, path: str, bytes_max: int, timeout_seconds: float) -> bytes:
        """Return at most one byte more than `bytes_max` of the answer."""
        options = references.resolved(SECTION, self._options)
        headers = {"Accept": ACCEPT, **self._authorization(options)}
        request = urllib.request.Request(self.base + path, headers=headers)  # noqa: S310 - http(s) was required
        handlers: list[urllib.request.BaseHandler] = [_OneServer()]
        if self.base.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=self._tls(options)))
        elif is_loopback(self.base):
            # A proxy of the environment would get the credentials in plain text.
            handlers.append(urllib.request.ProxyHandler({}))
        opener = urllib.request.build_opener(*handlers)
        with opener.open(request, timeout=timeout_seconds) as answer:
            data: bytes = answer.read(bytes_max + 1)
        return data

    def problem_of(self, error: Exception) -> Problem:
        """Return the reason of a failed request, without secrets."""
        found = self._problem_of(error)
        return found._replace(text=references.hidden(found.text, self._options))

    def _problem_of(self, error: Exception) -> Problem:
        if isinstance(error, urllib.error.HTTPError):
            return self._answered(error)
        reason = error
        if isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception):
            reason = error.reason
        text = str(reason) or type(reason).__name__
        if isinstance(reason, ssl.SSLCertVerificationError):
            remedy = (
                f"Set {SECTION}.{AUTHORITY} to the certificate of its authority, and value.schema "
                "to a name that its certificate has."
            )
            return Problem(reason.verify_message or text, remedy, may_pass=False)
        is_tls = self.base.startswith("https:")
        if isinstance(reason, ssl.SSLError):
            return Problem(text, self._own_certificate(), may_pass=False)
        is_cut = isinstance(reason, ConnectionError | http.client.HTTPException)
        if is_cut and is_tls and CERTIFICATE not in self._options:
            return Problem(text, f"{_CLIENT} {_NETWORK}", may_pass=True)
        return Problem(text, _NETWORK, may_pass=not isinstance(error, _OtherServerError))

    def _own_certificate(self) -> str:
        if CERTIFICATE in self._options:
            return f"Check {SECTION}.{CERTIFICATE}: the registry must accept its authority."
        return f"{_CLIENT} Otherwise check that value.schema names the port with TLS."

    def _answered(self, error: urllib.error.HTTPError) -> Problem:
        text = _error_text(error)
        has_user = user_of(self._address) is not None
        own = [f"{SECTION}.{name}" for name in _CONFIGURED if name in self._options]
        if error.code == _UNAUTHORIZED:
            remedy = f"Set {SECTION}.{TOKEN}, or {SECTION}.{USERNAME} and {SECTION}.{WORD}."
            if own or has_user:
                remedy = f"Check {' and '.join(own) or 'the user in value.schema'}."
            return Problem(text, remedy, may_pass=False)
        if error.code == _FORBIDDEN:
            named = " and ".join(own) or ("value.schema" if has_user else "the pipeline")
            remedy = f"Allow the identity of {named} to read schemas, or use another one."
            return Problem(text, remedy, may_pass=False)
        return Problem(text, _NETWORK, may_pass=False)

    def _authorization(self, options: Mapping[str, str]) -> dict[str, str]:
        if TOKEN in options:
            if not (options[TOKEN].isascii() and options[TOKEN].isprintable()):
                # The library would show it in its error.
                raise references.SecretError(
                    "",
                    f"{SECTION}.{TOKEN}",
                    "it has signs that no token has, such as a line break.",
                    "Correct the variable or the file.",
                )
            return {"Authorization": f"Bearer {options[TOKEN]}"}
        name, word = options.get(USERNAME), options.get(WORD)
        if name is None:
            user = user_of(self._address)
            if user is None:
                return {}
            name, word = (references.resolved("value", {_ADDRESS: one})[_ADDRESS] for one in user)
        token = base64.b64encode(f"{name}:{word}".encode()).decode()
        references.remember(token.rstrip("="))  # an answer may repeat the header
        return {"Authorization": f"Basic {token}"}

    def _tls(self, options: Mapping[str, str]) -> ssl.SSLContext:
        """Return the context of these files; a new one after any of them was replaced."""
        files = tuple(
            (name, options[name]) for name in (AUTHORITY, CERTIFICATE, KEY) if name in options
        )
        stamp = (files, options.get(KEY_WORD), tuple(_stamp(name, path) for name, path in files))
        if self._context is None or self._context[0] != stamp:
            self._context = (stamp, _new_context(options))
        return self._context[1]


class _OtherServerError(urllib.error.URLError):
    """A redirect to another server, which must not get the credentials."""


class _OneServer(urllib.request.HTTPRedirectHandler):
    """Follows redirects within one server."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the next request; raise if it is for another server."""
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            other = f"{new.scheme}://{new.netloc.rpartition('@')[2]}"
            raise _OtherServerError(f"{code} redirects to another server, {other}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def shown_address(address: str) -> str:
    """Return an address without its user, whose references are not resolved."""
    parts = urllib.parse.urlsplit(REFERENCE.sub("-", address))
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("the address of a registry is written http://host:port/path.")
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}"


def _new_context(options: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if AUTHORITY in options:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts this authority only
        try:
            context.load_verify_locations(options[AUTHORITY])
        except (OSError, ssl.SSLError) as error:
            raise _unreadable(AUTHORITY, options[AUTHORITY], error) from None
    if CERTIFICATE in options:
        try:
            # Without a password OpenSSL would ask for one at the terminal.
            word = options.get(KEY_WORD, "")
            context.load_cert_chain(options[CERTIFICATE], options.get(KEY), password=word)
        except (OSError, ssl.SSLError, ValueError) as error:
            place = " and ".join(options[name] for name in (CERTIFICATE, KEY) if name in options)
            raise _unreadable(CERTIFICATE, place, error) from None
    return context


def _stamp(name: str, path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise _unreadable(name, path, error) from None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _unreadable(name: str, place: str, error: Exception) -> references.SecretFileError:
    is_wrong = isinstance(error, ssl.SSLError | ValueError)
    reason = "it is not PEM, or key and password do not fit" if is_wrong else ""
    return references.SecretFileError(
        "",
        f"{SECTION}.{name}",
        f"{place} cannot be read: {reason or getattr(error, 'strerror', None) or error}.",
        "Create it where the pipeline runs (on a cluster, on every machine), or correct it.",
    )


def _error_text(error: urllib.error.HTTPError) -> str:
    """Return the registry's message, if it is in the registry's own format."""
    try:
        message = json.loads(error.read(_ERROR_BYTES_MAX)).get("message")
    except (ValueError, AttributeError, OSError):
        message = None
    return f"{error.code} {message or error.reason}"
