"""UpdateFeatures: the levels in force may be asked for; nothing else can be had."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.broker.handlers.asker import Asker

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
Update = tuple[str, int, int]
TRANSACTIONS: Update = ("transaction.version", 2, UPGRADE)
GROUPS: Update = ("group.version", 1, UPGRADE)


def update(
    asker: Asker, *updates: Update, version: int = 2, validate_only: bool = True
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        feature_updates=tuple(
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ),
        validate_only=validate_only,
    )
    return asker.ask(request, version, UpdateFeaturesResponse)


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("updates", [(TRANSACTIONS,), (TRANSACTIONS, GROUPS), ()])
def test_the_levels_in_force(
    asker: Asker, updates: tuple[Update, ...], validate_only: bool
) -> None:
    answer = update(asker, *updates, validate_only=validate_only)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert answer.results == ()


def test_old_versions_have_a_result_for_each_feature(asker: Asker) -> None:
    answer = update(asker, TRANSACTIONS, version=1)
    (result,) = answer.results
    assert (result.feature, result.error_code) == ("transaction.version", ErrorCode.NONE)
    assert result.error_message == "NONE"


REFUSED: list[tuple[Update, str]] = [
    (("transaction.version", 3, UPGRADE), "Local controller 1 only supports versions 0-2"),
    (("transaction.version", 1, UPGRADE), "Can't downgrade the version of this feature without"),
    (("transaction.version", -1, UPGRADE), "A feature version cannot be less than 0."),
    (("transaction.version", 2, 0), "The controller does not support the given upgrade type."),
    (("transaction.version", 2, 9), "The controller does not support the given upgrade type."),
    (("nope", 1, UPGRADE), "Local controller 1 does not support this feature."),
    (("nope", 0, SAFE_DOWNGRADE), "Feature nope not found."),
]


@pytest.mark.parametrize(("wrong", "text"), REFUSED, ids=range(len(REFUSED)))
@pytest.mark.parametrize("version", [1, 2])
def test_one_wrong_update_refuses_all(asker: Asker, wrong: Update, text: str, version: int) -> None:
    answer = update(asker, GROUPS, wrong, version=version)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    name, level, _ = wrong
    beginning = (
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {name}. "
    )
    assert (answer.error_message or "").startswith(beginning + text)
    assert answer.results == ()


@pytest.mark.parametrize(("may_go_down", "level", "ok"), [(True, 2, True), (False, 1, False)])
def test_version_0_has_a_flag_instead_of_a_type(
    asker: Asker, may_go_down: bool, level: int, ok: bool
) -> None:
    request = UpdateFeaturesRequest(
        feature_updates=(
            FeatureUpdateKey(
                feature="transaction.version", max_version_level=level, allow_downgrade=may_go_down
            ),
        )
    )
    answer = asker.ask(request, 0, UpdateFeaturesResponse)
    assert (answer.error_code == ErrorCode.NONE) == ok


@pytest.mark.parametrize("kind", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_levels_do_not_go_down_here(penstock: Asker, kind: int) -> None:
    # Kafka turns transactions of version 2 off.
    answer = update(penstock, ("transaction.version", 1, kind))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Penstock serves level 2" in (answer.error_message or "")
