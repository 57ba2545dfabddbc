"""UpdateFeatures: raises the levels of the cluster's own features; all others are fixed.

A request for the level that is in force changes nothing and succeeds. The level of a feature of the
metadata is raised if every broker supports it. Everything else is refused, with Kafka's words where
Kafka refuses it too; a lower level is refused here because it would have no effect, or because
newer values may be stored.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.error_mapping import outcome_of
from penstock.broker.features import Feature, features_of
from penstock.cluster.link.feature_changes import LevelRefusedError
from penstock.core.errors import PenstockError
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


async def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Accept all updates, or refuse all and name the first invalid one."""
    if not context.allows_cluster(Operation.ALTER):
        return UpdateFeaturesResponse(
            error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.message
        )
    features = features_of(context.services)
    for problem in _problems(request, context, features):
        return _refused(problem)
    raised = {
        update.feature: update.max_version_level
        for update in request.feature_updates
        if update.max_version_level > features[update.feature].level
    }
    if raised:
        try:
            await context.services.brokers.raise_levels(raised, validate_only=request.validate_only)
        except LevelRefusedError as error:
            return _refused(_described(error.feature, raised[error.feature], str(error)))
        except PenstockError as error:
            outcome = outcome_of(error)
            return UpdateFeaturesResponse(error_code=outcome.code, error_message=outcome.message)
    results: tuple[UpdatableFeatureResult, ...] = ()
    if context.api_version <= _RESULTS_VERSION_MAX:
        results = tuple(
            UpdatableFeatureResult(
                feature=update.feature, error_code=ErrorCode.NONE, error_message="NONE"
            )
            for update in request.feature_updates
        )
    return UpdateFeaturesResponse(error_code=ErrorCode.NONE, results=results)


def _refused(problem: str) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message="The update failed for all features since the following feature had an "
        f"error: {problem}",
    )


def _described(feature: str, level: int, problem: str) -> str:
    shown = feature[:_SHOWN_CHARACTERS_MAX]
    return f"Invalid update version {level} for feature {shown}. {problem}"


def _problems(
    request: UpdateFeaturesRequest, context: RequestContext, features: Mapping[str, Feature]
) -> Iterator[str]:
    for update in request.feature_updates:
        upgrade_type = update.upgrade_type
        if context.api_version < _TYPE_VERSION:
            upgrade_type = _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
        found = features.get(update.feature)
        problem = _problem(update, found, upgrade_type, context.services.node_id)
        if problem is not None:
            yield _described(update.feature, update.max_version_level, problem)


def _problem(
    update: FeatureUpdateKey, found: Feature | None, upgrade_type: int, node_id: int
) -> str | None:
    wanted = update.max_version_level
    if upgrade_type not in _UPGRADE_TYPES:
        return "The controller does not support the given upgrade type."
    if wanted < 0:
        return "A feature version cannot be less than 0."
    if found is None:
        if wanted == 0:
            return f"Feature {update.feature[:_SHOWN_CHARACTERS_MAX]} not found."
        return f"Local controller {node_id} does not support this feature."
    if wanted > found.highest or found.level < wanted < found.lowest:
        return f"Local controller {node_id} only supports versions {found.lowest}-{found.highest}"
    if wanted >= found.level:
        return None
    if upgrade_type == _UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    return f"Penstock serves level {found.level} of this feature and cannot be set to a lower one."
