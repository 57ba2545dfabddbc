"""ApiVersions: the APIs and versions that this broker serves, read from the table of handlers.

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the list, so that any
client can choose a common version (KIP-511). Unsupported APIs are not listed.

The features are those of `broker.features`.
"""

import re
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.features import LEVELS, LOWEST_LEVEL
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Kafka's rule for client software names and versions (KIP-511)."""

_FINALIZED: Final = tuple(
    FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
    for name, level in LEVELS.items()
)
_SUPPORTED: Final = tuple(
    SupportedFeatureKey(name=name, min_version=LOWEST_LEVEL, max_version=level)
    for name, level in LEVELS.items()
)
_ZERO_LEVEL_VERSION: Final = 4
"""Older clients fail on a feature whose lowest supported level is 0 (KIP-584)."""
_FEATURES_EPOCH: Final = 0
"""The levels never change, so one epoch is enough; clients need one that is not negative."""


def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """List every API that is served."""
    error = ErrorCode.NONE
    if context.is_version_unsupported:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif context.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())
    api_keys = tuple(
        ApiVersion(
            api_key=key, min_version=versions.lowest_advertised, max_version=versions.highest
        )
        for key, versions in sorted(context.services.api_ranges.items())
    )
    return ApiVersionsResponse(
        error_code=error,
        api_keys=api_keys,
        supported_features=_SUPPORTED if context.api_version >= _ZERO_LEVEL_VERSION else (),
        finalized_features_epoch=_FEATURES_EPOCH,
        finalized_features=_FINALIZED,
    )
