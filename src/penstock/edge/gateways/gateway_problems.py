"""Errors of the HTTP gateway in the format of RFC 9457: `application/problem+json`. Pure.

Every answer that is not a success has a title, a status, the detail of this case, a remedy, and
Kafka's name of the error where a broker answered with one.
"""

import json
from collections.abc import Mapping
from typing import Final

from penstock.core.errors import PenstockError
from penstock.protocol.push.payloads import Refusal

CONTENT_TYPE: Final = "application/problem+json"
DETAIL_CHARACTERS_MAX: Final = 2_000
"""Messages repeat parts of the request; this bound keeps the answer small."""

_STATUSES: Final = {
    "SASL_AUTHENTICATION_FAILED": 401,
    "TOPIC_AUTHORIZATION_FAILED": 403,
    "GROUP_AUTHORIZATION_FAILED": 403,
    "CLUSTER_AUTHORIZATION_FAILED": 403,
    "UNKNOWN_TOPIC_OR_PARTITION": 404,
    "INVALID_TOPIC_EXCEPTION": 404,
    "OFFSET_OUT_OF_RANGE": 410,
    "MESSAGE_TOO_LARGE": 413,
    "RECORD_LIST_TOO_LARGE": 413,
    "NOT_LEADER_OR_FOLLOWER": 421,
    "INVALID_REQUEST": 400,
    "INVALID_TIMESTAMP": 422,
    "INVALID_RECORD": 422,
    "POLICY_VIOLATION": 422,
    "UNSUPPORTED_VERSION": 422,
    "REQUEST_TIMED_OUT": 504,
}
_TITLES: Final = {
    400: "Malformed request",
    401: "Authentication required",
    403: "Not allowed",
    404: "Not found",
    410: "Gone",
    413: "Too large",
    421: "Another broker",
    422: "Refused",
    503: "Not now",
    504: "Outcome unknown",
}
_REMEDIES: Final = {
    401: "Send the credentials of a user in the header Authorization.",
    403: "Allow it with `penstock acl add`.",
    404: "List topics with `penstock topic list`.",
    410: "Start at another position, such as from=earliest.",
    413: "Send smaller records, or raise max.message.bytes of the topic.",
    421: "Send the request to the broker that leads the partition.",
    503: "Repeat it in a moment.",
    504: "The records may or may not be stored: check before you repeat the request.",
}


class GatewayRefusedError(PenstockError):
    """A request that is answered with a problem."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        remedy: str = "",
        *,
        code: str | None = None,
        retry_after_seconds: int | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.remedy = remedy
        self.code = code
        self.retry_after_seconds = retry_after_seconds
        self.more = more or {}
        """Further members of the document."""

    def document(self) -> bytes:
        """Return the body of the answer."""
        found: dict[str, object] = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": str(self)[:DETAIL_CHARACTERS_MAX],
        }
        if self.remedy:
            found["remedy"] = self.remedy
        if self.code is not None:
            found["kafka_error"] = self.code
        return json.dumps({**found, **self.more}).encode()

    def headers(self) -> dict[str, str]:
        """Return the headers of the answer."""
        found = {"content-type": CONTENT_TYPE}
        if self.retry_after_seconds is not None:
            found["retry-after"] = str(self.retry_after_seconds)
        return found


def problem_of(refusal: Refusal, more: Mapping[str, object] | None = None) -> GatewayRefusedError:
    """Return the error of a request that the broker refused."""
    status = _STATUSES.get(refusal.code, 503 if refusal.retriable else 500)
    return GatewayRefusedError(
        status,
        _TITLES.get(status, "The broker failed"),
        refusal.error,
        _REMEDIES.get(status, "See the log of the broker."),
        code=refusal.code,
        retry_after_seconds=1 if status == 503 else None,
        more=more,
    )


def malformed(detail: str, remedy: str = "") -> GatewayRefusedError:
    """Return the error of a request that is not what the description says."""
    return GatewayRefusedError(
        400, _TITLES[400], detail, remedy or "See the guide of the gateways for the form."
    )
