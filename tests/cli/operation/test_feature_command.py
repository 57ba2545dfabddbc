"""`penstock cluster features` against three brokers, one of them newer."""

import pytest

from penstock.cli import exits
from penstock.cluster.features.levels import CLUSTER_FEATURE, FeatureRange
from tests.cli.operation.commands import Operated, operate

NEWER = (FeatureRange(CLUSTER_FEATURE, 1, 2),)


def test_levels_are_shown_and_raised(capfd: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        shown = await operated.penstock("cluster", "features")
        assert shown.code == exits.DONE
        assert shown.output.splitlines() == [
            "feature              level  all support  brokers",
            "group.version        1      0-1          1: 0-1, 2: 0-1, 3: 0-1",
            "penstock.cluster     1      1            1: 1, 2: 1, 3: 1",
            "share.version        1      0-1          1: 0-1, 2: 0-1, 3: 0-1",
            "transaction.version  2      0-2          1: 0-2, 2: 0-2, 3: 0-2",
        ]
        brokers.features = NEWER
        for broker_id in (1, 2):
            await brokers.stop(broker_id)
            await brokers.start_one(broker_id)
        refused = await operated.penstock("cluster", "features", "--raise", "penstock.cluster=2")
        assert refused.code == exits.FAILED
        assert "Broker 3 only supports versions 1-1" in refused.errors
        assert (await operated.penstock("cluster", "features", "--raise-all")).code == exits.DONE
        assert brokers.image.features.levels[CLUSTER_FEATURE] == 1
        await brokers.stop(3)
        await brokers.start_one(3)
        checked = await operated.penstock("cluster", "features", "--raise-all", "--check")
        assert checked.output.endswith("penstock.cluster can be raised to level 2\n")
        assert brokers.image.features.levels[CLUSTER_FEATURE] == 1
        document = await operated.document("cluster", "features", "--raise-all")
        assert document[1] == {
            "feature": "penstock.cluster",
            "level": 2,
            "supported_by_all": [1, 2],
            "brokers": {"1": [1, 2], "2": [1, 2], "3": [1, 2]},
        }
        again = await operated.penstock("cluster", "features", "--raise", "penstock.cluster=2")
        assert again.output.endswith("penstock.cluster is at level 2\n")
        lower = await operated.penstock("cluster", "features", "--raise", "penstock.cluster=1")
        assert lower.code == exits.FAILED
        assert "Can't downgrade" in lower.errors

    operate(capfd, act)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--raise", "x=2", "--raise-all"], "--raise or --raise-all"),
        (["--raise", "x"], "not NAME=VALUE"),
        (["--raise", "x=two"], "'two' is not a level"),
    ],
)
def test_wrong_usage(capfd: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    from penstock.cli.main import run

    assert run(["cluster", "features", *words]) == exits.USAGE
    assert text in capfd.readouterr().err
