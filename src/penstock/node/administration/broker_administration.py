"""`BrokerAdministration`: the settings of this broker, shown and changed while it runs.

The metadata checks and stores changes, so they are in force again after a restart. Only defaults of
topics can be changed: when a call returns, the logs of every topic without its own value use them.
Values of the settings file, the environment or a flag are kept and apply again when the change is
deleted.
"""

from collections.abc import Sequence
from functools import partial

from penstock.cluster.configs.described_configs import BrokerLayers
from penstock.cluster.configs.setting_changes import SettingsChange
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
