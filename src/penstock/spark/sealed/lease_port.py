"""`LeasePort`: asks the admin port of a broker for leases, over HTTP.

Guarantees: the settings of the query (`kafka.*`) are the identity, too: its authorities verify the
certificate of the port, and its user and password, or its token, are sent only after the port has
asked for one, over TLS or to this machine, and to no other address: redirects and proxies are not
followed. The size of an answer and each wait for bytes are bounded, the time of a whole exchange is
not. Every failure is a `LeaseUnavailableError` with the reason.
"""

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from penstock.client.security.bearer import TOKENS
from penstock.client.security.options import Security, TlsOptions
from penstock.client.security.tls import build_context
from penstock.core.errors import ClientError, PenstockError
from penstock.core.loopback import is_loopback
from penstock.core.quantities import printable
from penstock.spark.planning import OffsetRange
from penstock.spark.sealed.lease_answers import LeaseAnswer, read_answer

PATH: Final = "/api/v1/leases"
TIMEOUT_SECONDS: Final = 15.0
ANSWER_BYTES_MAX: Final = 8_388_608
"""An answer with the largest number of segments has about a megabyte."""
_REASON_CHARACTERS_MAX: Final = 500


class LeaseUnavailableError(ClientError):
    """There is no lease: the query reads through Fetch, or fails if it may not."""


class _Reply(NamedTuple):
    status: int
    challenge: str
    body: bytes


class LeasePort:
    """The leases of one broker."""

    def __init__(
        self, url: str, security: Security, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """`url` was checked with the options of the query."""
        self._parts: SplitResult = urlsplit(url)
        self._url = url.rstrip("/")
        self._security = security
        self._timeout_seconds = timeout_seconds

    def grant(self, topic: str, ranges: list[OffsetRange], seconds: int) -> LeaseAnswer:
        """Return a lease of the sealed segments of these offsets."""
        wanted = {
            "topic": topic,
            "seconds": seconds,
            "partitions": [
                {
                    "partition": one.at.partition,
                    "from_offset": one.from_offset,
                    "until_offset": one.until_offset,
                }
                for one in ranges
            ],
        }
        return read_answer(self._ask("POST", PATH, wanted), topic)

    def release(self, lease_id: str) -> None:
        """End a lease; one that has ended is not an error."""
        self._ask("DELETE", f"{PATH}/{lease_id}", None, accepted=(404,))

    def _ask(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None,
        accepted: tuple[int, ...] = (),
    ) -> Mapping[str, Any]:
        body = None if document is None else json.dumps(document).encode()
        reply = self._send(method, path, body, None)
        if reply.status == 401 and (header := self._authorization(reply.challenge)) is not None:
            reply = self._send(method, path, body, header)
        if not 200 <= reply.status < 300 and reply.status not in accepted:
            raise LeaseUnavailableError(
                f"{self._url}{path} answers {reply.status}: {_detail(reply.body)}"
            )
        if not reply.body or reply.status in accepted:
            return {}
        try:
            found = json.loads(reply.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise LeaseUnavailableError(f"{self._url}{path} does not answer with a JSON object")
        return found

    def _send(self, method: str, path: str, body: bytes | None, header: str | None) -> _Reply:
        headers = {} if body is None else {"Content-Type": "application/json"}
        if header is not None:
            headers["Authorization"] = header
        connection = self._connection()
        try:
            connection.request(method, f"{self._parts.path.rstrip('/')}{path}", body, headers)
            answer = connection.getresponse()
            data = answer.read(ANSWER_BYTES_MAX + 1)
            challenge = str(answer.getheader("WWW-Authenticate") or "")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LeaseUnavailableError(f"{self._url}{path} is unreachable: {error}") from error
        finally:
            connection.close()
        if len(data) > ANSWER_BYTES_MAX:
            raise LeaseUnavailableError(
                f"{self._url}{path} answers with more than {ANSWER_BYTES_MAX} bytes"
            )
        return _Reply(answer.status, challenge.partition(" ")[0].lower(), data)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme != "https":
            return http.client.HTTPConnection(host, port or 80, timeout=self._timeout_seconds)
        try:
            context = build_context(self._security.tls or TlsOptions())
        except (PenstockError, ssl.SSLError) as error:
            raise LeaseUnavailableError(f"{self._url}: {error}") from error
        return http.client.HTTPSConnection(
            host, port or 443, timeout=self._timeout_seconds, context=context
        )

    def _authorization(self, challenge: str) -> str | None:
        """Return the header that proves the identity; None without such a proof."""
        sasl = self._security.sasl
        is_private = self._parts.scheme == "https" or is_loopback(self._parts.hostname or "")
        if sasl is None or not is_private:
            return None
        if challenge == "basic" and sasl.password is not None and ":" not in sasl.username:
            pair = f"{sasl.username}:{sasl.password.reveal()}".encode()
            return f"Basic {base64.b64encode(pair).decode()}"
        if challenge == "bearer" and sasl.tokens is not None:
            try:
                token = TOKENS.token(sasl.tokens, self._security.tls)
            except PenstockError as error:
                raise LeaseUnavailableError(f"{self._url}: {error}") from error
            return f"Bearer {token.reveal()}"
        return None


def _detail(body: bytes) -> str:
    """Return the reason in a problem, without control characters."""
    try:
        document = json.loads(body)
        detail = document["detail"] if isinstance(document, dict) else ""
    except (ValueError, KeyError, RecursionError):
        detail = ""
    if not isinstance(detail, str) or not detail:
        return "no reason is given"
    return printable(detail)[:_REASON_CHARACTERS_MAX]
