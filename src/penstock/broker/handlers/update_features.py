"""UpdateFeatures: the levels of features are fixed by the version of Penstock.

A request for the level that is in force changes nothing and succeeds. Everything else is refused,
with Kafka's words where Kafka refuses it too; a lower level is refused here because it would have
no effect.
"""

from collections.abc import Iterator
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.features import LEVELS, LOWEST_LEVEL
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from penstock.security.acls.values import Operation

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UPGRADE_TYPES: Final = frozenset({_UPGRADE, _SAFE_DOWNGRADE, 3})
_TYPE_VERSION: Final = 1
"""The first version with an upgrade type; older ones have a flag that allows a downgrade."""
_RESULTS_VERSION_MAX: Final = 1
"""The last version that has a result for each feature."""
_SHOWN_CHARACTERS_MAX: Final = 249


def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Accept all updates, or refuse all and name the first invalid one."""
    if not context.allows_cluster(Operation.ALTER):
        return UpdateFeaturesResponse(
            error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.message
        )
    for problem in _problems(request, context):
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_UPDATE_VERSION,
            error_message="The update failed for all features since the following feature had an "
            f"error: {problem}",
        )
    results: tuple[UpdatableFeatureResult, ...] = ()
    if context.api_version <= _RESULTS_VERSION_MAX:
        results = tuple(
            UpdatableFeatureResult(
                feature=update.feature, error_code=ErrorCode.NONE, error_message="NONE"
            )
            for update in request.feature_updates
        )
    return UpdateFeaturesResponse(error_code=ErrorCode.NONE, results=results)


def _problems(request: UpdateFeaturesRequest, context: RequestContext) -> Iterator[str]:
    for update in request.feature_updates:
        upgrade_type = update.upgrade_type
        if context.api_version < _TYPE_VERSION:
            upgrade_type = _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
        problem = _problem(update, upgrade_type, context.services.node_id)
        if problem is not None:
            feature = update.feature[:_SHOWN_CHARACTERS_MAX]
            yield (
                f"Invalid update version {update.max_version_level} for feature {feature}. "
                f"{problem}"
            )


def _problem(update: FeatureUpdateKey, upgrade_type: int, node_id: int) -> str | None:
    wanted, current = update.max_version_level, LEVELS.get(update.feature)
    if upgrade_type not in _UPGRADE_TYPES:
        return "The controller does not support the given upgrade type."
    if wanted < 0:
        return "A feature version cannot be less than 0."
    if current is None:
        if wanted == 0:
            return f"Feature {update.feature[:_SHOWN_CHARACTERS_MAX]} not found."
        return f"Local controller {node_id} does not support this feature."
    if wanted > current:
        return f"Local controller {node_id} only supports versions {LOWEST_LEVEL}-{current}"
    if wanted == current:
        return None
    if upgrade_type == _UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    return f"Penstock serves level {current} of this feature and cannot be set to a lower one."
