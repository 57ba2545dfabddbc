"""The setting of a broker that runs and is asked to lead nothing (pure).

It is stored with the other settings of the broker, so it outlasts a restart. The controller reads
it from the image and moves the leaders; new topics leave the broker out while there are others.
Unlike a broker that is about to stop, its replicas stay in sync: no partition is less safe.
"""

from typing import Final

from penstock.cluster.image import MetadataImage
from penstock.core.setting_text import is_true

DRAIN: Final = "penstock.broker.drain"


def drained_brokers(image: MetadataImage) -> frozenset[int]:
    """Return the brokers with the setting, whether they run or not."""
    return frozenset(
        int(name)
        for name, found in image.broker_settings.items()
        if name.isdecimal() and is_true(found.settings.get(DRAIN))
    )
