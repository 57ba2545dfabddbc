"""Calls about features as values: plain values in, a `Call` out, as in `client.calls`.

The levels in use are those of the cluster, and the supported ones those of the broker that is
asked. Works with each Kafka cluster that has ApiVersions 3.
"""

from typing import Final, NamedTuple

from penstock.client.transport.call import Call, raise_error
from penstock.client.transport.versions import ASK_VERSIONS, ask_versions
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE: Final = 1
FEATURES_VERSION: Final = 3
"""The first version of ApiVersions with features."""


class BrokerFeatures(NamedTuple):
    """The features of one broker."""

    supported: dict[str, tuple[int, int]]
    """The lowest and highest level by name."""
    used: dict[str, int]
    """The level in use in the cluster by name."""


def describe_features() -> Call[BrokerFeatures]:
    """Return the features of the broker."""

    def read(answer: ApiVersionsResponse) -> BrokerFeatures:
        raise_error(answer.error_code, None, "features")
        return BrokerFeatures(
            {one.name: (one.min_version, one.max_version) for one in answer.supported_features},
            {one.name: one.max_version_level for one in answer.finalized_features},
        )

    asked = ask_versions(ASK_VERSIONS[1])
    return Call(asked.request, ApiVersionsResponse, read, version_min=FEATURES_VERSION)


def raise_feature_levels(
    levels: dict[str, int], timeout_ms: int, *, validate_only: bool = False
) -> Call[None]:
    """Raise the levels of features, all or none."""
    request = UpdateFeaturesRequest(
        timeout_ms=timeout_ms,
        feature_updates=tuple(
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=UPGRADE)
            for name, level in levels.items()
        ),
        validate_only=validate_only,
    )

    def read(answer: UpdateFeaturesResponse) -> None:
        raise_error(answer.error_code, answer.error_message, "features")
        for one in answer.results:
            raise_error(one.error_code, one.error_message, one.feature)

    return Call(request, UpdateFeaturesResponse, read, version_min=1)
