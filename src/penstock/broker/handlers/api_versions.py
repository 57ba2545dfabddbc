"""ApiVersions: the APIs and versions that this broker serves, read from the table of handlers.

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the list, so that any
client can choose a common version (KIP-511). Unsupported APIs are not listed.

The features are those of `broker.features`.
"""

import re
from collections.abc import Mapping
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.features import FIXED, Feature, features_epoch, features_of
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

_ZERO_LEVEL_VERSION: Final = 4
"""Older clients fail on a feature whose lowest supported level is 0 (KIP-584)."""


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
    features = features_of(context.services)
    return ApiVersionsResponse(
        error_code=error,
        api_keys=api_keys,
        supported_features=_supported(features, context.api_version),
        finalized_features_epoch=features_epoch(context.services),
        finalized_features=_FINALIZED if features is FIXED else _finalized(features),
    )


def _supported(features: Mapping[str, Feature], version: int) -> tuple[SupportedFeatureKey, ...]:
    has_zero = version >= _ZERO_LEVEL_VERSION
    if features is FIXED:
        return _SUPPORTED if has_zero else ()
    return tuple(one for one in _listed(features) if has_zero or one.min_version > 0)


def _listed(features: Mapping[str, Feature]) -> tuple[SupportedFeatureKey, ...]:
    return tuple(
        SupportedFeatureKey(name=name, min_version=one.lowest, max_version=one.highest)
        for name, one in features.items()
    )


def _finalized(features: Mapping[str, Feature]) -> tuple[FinalizedFeatureKey, ...]:
    return tuple(
        FinalizedFeatureKey(name=name, max_version_level=one.level, min_version_level=one.level)
        for name, one in features.items()
        if one.level > 0
    )


# A broker alone answers each new connection with the same.
_SUPPORTED: Final = _listed(FIXED)
_FINALIZED: Final = _finalized(FIXED)
