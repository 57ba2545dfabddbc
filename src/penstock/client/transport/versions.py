"""The version of an API to use with a broker, for both transports (pure).

A connection first sends ApiVersions in the highest version that it knows. An older broker answers
in version 0 with UNSUPPORTED_VERSION and, since KIP-511, its list; then the client asks once more.
Every later call uses the highest version that broker, message and call support.
"""

from collections.abc import Mapping
from typing import Final

from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, raise_error
from penstock.core.errors import BrokerAnswerError
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CLIENT_NAME: Final = "penstock"
CLIENT_VERSION: Final = "0.2.0"

Versions = Mapping[int, tuple[int, int]]
"""The lowest and highest version of each API."""

ASK_VERSIONS: Final = ApiVersionsRequest.VERSIONS
"""The versions of the ApiVersions request."""


def ask_versions(version: int) -> Call[ApiVersionsResponse]:
    """Return the first call of a connection; it is sent in exactly this version."""
    request = ApiVersionsRequest(
        client_software_name=CLIENT_NAME, client_software_version=CLIENT_VERSION
    )
    return Call(request, ApiVersionsResponse, lambda answer: answer, version)


def lower_version(answer: ApiVersionsResponse) -> int | None:
    """Return the version to ask an older broker in; None when the broker has answered."""
    if answer.error_code != ErrorCode.UNSUPPORTED_VERSION:
        return None
    known = {one.api_key: one.max_version for one in answer.api_keys}
    return max(0, min(ASK_VERSIONS[1], known.get(ApiKey.API_VERSIONS, 0)))


def served_versions(answer: ApiVersionsResponse) -> Versions:
    """Return the versions that the broker supports; raise `BrokerAnswerError` for an error code."""
    raise_error(answer.error_code, None, "asking for versions")
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


def choose_version(call: Call[object], served: Versions, address: Address) -> int:
    """Return the highest common version; raise `BrokerAnswerError` when there is none."""
    api_key: ApiKey = vars(type(call.request))["API_KEY"]
    lowest, highest = call.request.VERSIONS
    if call.version_max is not None:
        highest = min(highest, call.version_max)
    if call.version_min is not None:
        lowest = max(lowest, call.version_min)
    offered = served.get(api_key)
    if offered is not None and max(lowest, offered[0]) <= min(highest, offered[1]):
        return min(highest, offered[1])
    code = ErrorCode.UNSUPPORTED_VERSION
    how = "not at all" if offered is None else f"in versions {offered[0]}-{offered[1]}"
    raise BrokerAnswerError(
        code.value,
        code.name,
        f"{address} serves {api_key.name} {how}; versions {lowest}-{highest} are needed.",
    )
