"""`BrokerAdministration`: the settings of this broker, shown and changed while it runs.

The metadata decides and keeps what is changed, so it is in force again after a restart. What can be
changed is what topics follow: when a call returns, the logs of every topic that says nothing else
follow it. What is in the settings file, the environment or a flag stays there and counts again when
the change is deleted.
"""

from collections.abc import Sequence

from penstock.cluster.described_configs import BrokerLayers
from penstock.cluster.service import MetadataService
from penstock.cluster.setting_changes import SettingsChange
from penstock.core.errors import PenstockError
from penstock.node.given_layers import GivenLayers
from penstock.node.topic_administration import Topics


class Brokers:
    """Describes and changes the settings of this broker."""

    def __init__(self, metadata: MetadataService, given: GivenLayers, topics: Topics) -> None:
        self._metadata = metadata
        self._given = given
        self._topics = topics

    @property
    def layers(self) -> BrokerLayers:
        """What was given to this broker, as of now."""
        return self._given.layers_in(self._metadata.image)

    async def follow(self) -> None:
        """Something of the layers has changed: let the topics follow what is in force now."""
        await self._topics.follow_defaults()

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """One outcome for each; when the call returns, the logs follow."""
        outcomes: list[PenstockError | None] = []
        for change in changes:
            try:
                await self._metadata.change_broker_settings(
                    change, self._given.layers_in, validate_only=validate_only
                )
            except PenstockError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        if not validate_only:
            await self.follow()
        return outcomes
