"""Apache Kafka's tool shows and raises the levels of features of three Penstock brokers."""

import asyncio
from pathlib import Path

import pytest

from penstock.cluster.features.levels import CLUSTER_FEATURE, FeatureRange
from tests.interop.tool_runner import Output, ToolRunner, compiled
from tests.node.peers.three_brokers import IDS, ThreeBrokers, run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def test_kafka_features(tmp_path: Path) -> None:
    compiled()

    async def act(brokers: ThreeBrokers) -> None:
        endpoint = brokers.image.brokers[1].endpoints[0]
        with ToolRunner(f"{endpoint.host}:{endpoint.port}", tmp_path) as tools:

            async def features(*words: str) -> Output:
                where = ("--bootstrap-server", tools.bootstrap)
                return await asyncio.to_thread(tools.run, "kafka-features", *where, *words)

            shown = await features("describe")
            assert shown.code == 0, shown
            (line,) = (one for one in shown.out.splitlines() if CLUSTER_FEATURE in one)
            assert line.split()[:8] == [
                "Feature:",
                CLUSTER_FEATURE,
                "SupportedMinVersion:",
                "1",
                "SupportedMaxVersion:",
                "1",
                "FinalizedVersionLevel:",
                "1",
            ]
            wanted = ("upgrade", "--feature", f"{CLUSTER_FEATURE}=2")
            refused = await features(*wanted)
            assert refused.code == 1
            assert "only supports versions 1-1" in refused.out + refused.err
            brokers.features = (FeatureRange(CLUSTER_FEATURE, 1, 2),)
            for broker_id in IDS[1:]:
                await brokers.stop(broker_id)
                await brokers.start_one(broker_id)
            assert (await features(*wanted)).code == 1
            assert brokers.image.features.levels[CLUSTER_FEATURE] == 1

    run(act)


def test_kafka_features_raises_a_level(tmp_path: Path) -> None:
    async def act(brokers: ThreeBrokers) -> None:
        brokers.features = (FeatureRange(CLUSTER_FEATURE, 1, 2),)
        for broker_id in IDS:
            await brokers.stop(broker_id)
            await brokers.start_one(broker_id)
        endpoint = brokers.image.brokers[1].endpoints[0]
        with ToolRunner(f"{endpoint.host}:{endpoint.port}", tmp_path) as tools:
            done = await asyncio.to_thread(
                tools.run,
                "kafka-features",
                "--bootstrap-server",
                tools.bootstrap,
                "upgrade",
                "--feature",
                f"{CLUSTER_FEATURE}=2",
            )
            assert done.code == 0, done
            assert f"{CLUSTER_FEATURE} was upgraded to 2" in done.out
            assert brokers.image.features.levels[CLUSTER_FEATURE] == 2

    run(act)
