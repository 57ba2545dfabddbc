"""`GivenLayers`: the settings given to this broker, at its start and over the wire, as of now."""

from collections.abc import Mapping

from penstock.cluster.broker_changes import broker_layers
from penstock.cluster.configs.broker_configs import static_layer
from penstock.cluster.configs.described_configs import BrokerLayers, topic_defaults
from penstock.cluster.configs.topic_configs import parse_topic_settings
from penstock.cluster.image import MetadataImage
from penstock.core.settings.current_settings import CurrentSettings
from penstock.core.settings.tree import Settings


class GivenLayers:
    """The layers of one broker's settings, for any image of the metadata."""

    def __init__(self, node_id: int, current: CurrentSettings) -> None:
        self._node_id = node_id
        self._current = current
        self._known = current.settings
        self._static = static_layer(self._known)

    def layers_in(self, image: MetadataImage) -> BrokerLayers:
        """Return the given layers, with this image of the metadata."""
        if self._current.settings is not self._known:
            self._known = self._current.settings
            self._static = static_layer(self._known)
        return broker_layers(image, self._node_id, self._static)

    def check(self, settings: Settings, image: MetadataImage) -> None:
        """Raise `InvalidTopicConfigError` if topics could not follow these settings."""
        layers = broker_layers(image, self._node_id, static_layer(settings))
        parse_topic_settings({}, topic_defaults(layers))

    def topic_defaults_in(self, image: MetadataImage) -> Mapping[str, str]:
        """Return the defaults of topics, with this image of the metadata."""
        return topic_defaults(self.layers_in(image))
