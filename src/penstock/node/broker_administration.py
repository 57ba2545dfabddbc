"""`BrokerAdministration`: the settings of this broker, shown and changed while it runs.

The metadata decides and keeps what is changed, so it is in force again after a restart. What can be
changed is what topics follow: when a call returns, the logs of every topic that says nothing else
follow it. What is in the settings file, the environment or a flag stays there and counts again when
the change is deleted.
"""

from collections.abc import Sequence

from penstock.cluster.broker_changes import broker_layers
from penstock.cluster.broker_configs import static_layer
from penstock.cluster.described_configs import BrokerLayers, topic_defaults
from penstock.cluster.image import MetadataImage
from penstock.cluster.service import MetadataService
from penstock.cluster.setting_changes import SettingsChange
from penstock.core.current_settings import CurrentSettings
from penstock.core.errors import PenstockError
from penstock.node.topic_administration import Topics


class Brokers:
    """Describes and changes the settings of this broker."""

    def __init__(
        self, node_id: int, metadata: MetadataService, current: CurrentSettings, topics: Topics
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._current = current
        self._topics = topics
        self._known = current.settings
        self._static = static_layer(self._known)

    @property
    def layers(self) -> BrokerLayers:
        """What was given to this broker, as of now."""
        return self._layers_in(self._metadata.image)

    def _layers_in(self, image: MetadataImage) -> BrokerLayers:
        if self._current.settings is not self._known:
            self._known = self._current.settings
            self._static = static_layer(self._known)
        return broker_layers(image, self._node_id, self._static)

    async def follow(self) -> None:
        """Something of the layers has changed: let the topics follow what is in force now."""
        await self._topics.follow_defaults(topic_defaults(self.layers))

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """One outcome for each; when the call returns, the logs follow."""
        outcomes: list[PenstockError | None] = []
        for change in changes:
            try:
                await self._metadata.change_broker_settings(
                    change, self._layers_in, validate_only=validate_only
                )
            except PenstockError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        if not validate_only:
            await self.follow()
        return outcomes
