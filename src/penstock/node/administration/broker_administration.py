"""`BrokerAdministration`: the settings of this broker, shown and changed while it runs.

The metadata checks and stores changes, so they are in force again after a restart. Only defaults of
topics can be changed: when a call returns, the logs of every topic without its own value use them.
Values of the settings file, the environment or a flag are kept and apply again when the change is
deleted.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from penstock.cluster.configs.described_configs import BrokerLayers
from penstock.cluster.configs.setting_changes import SettingsChange
from penstock.cluster.link.change_values import ChangeBase, Decision
from penstock.cluster.link.feature_changes import raise_levels
from penstock.cluster.moves.broker_removal import removal_writes
from penstock.cluster.service import MetadataService
from penstock.core.errors import PenstockError
from penstock.node.administration.each_change import change_each
from penstock.node.administration.topic_administration import Topics
from penstock.node.given_layers import GivenLayers


class Brokers:
    """Describes and changes the settings of this broker."""

    def __init__(self, metadata: MetadataService, given: GivenLayers, topics: Topics) -> None:
        self._metadata = metadata
        self._given = given
        self._topics = topics

    @property
    def layers(self) -> BrokerLayers:
        """The settings given to this broker, as of now."""
        return self._given.layers_in(self._metadata.image)

    async def follow(self) -> None:
        """Apply the settings in force to the topics, after a layer has changed."""
        await self._topics.follow_defaults()

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """Return one outcome for each change; when the call returns, the logs follow."""
        outcomes = await change_each(
            changes,
            partial(
                self._metadata.change_broker_settings,
                layers=self._given.layers_in,
                validate_only=validate_only,
            ),
        )
        if not validate_only:
            await self.follow()
        return outcomes

    async def forget(self, broker_id: int) -> None:
        """Forget a broker that has stopped and has no replicas; raise a domain error otherwise."""
        was_tried = False

        async def decide(base: ChangeBase) -> Decision[None]:
            nonlocal was_tried
            if was_tried and broker_id not in base.image.nodes:
                # An earlier attempt has written it, and its answer was lost.
                return Decision(None, lambda: None)
            writes = removal_writes(base.keys, base.image, broker_id, base.guards)
            was_tried = True
            return Decision((writes,), lambda: None)

        await self._metadata.carry_out("forget a broker", decide)

    async def raise_levels(self, levels: Mapping[str, int], *, validate_only: bool) -> None:
        """Raise levels of the cluster's features; `LevelRefusedError` if one cannot be used."""
        await raise_levels(self._metadata, levels, validate_only=validate_only)
