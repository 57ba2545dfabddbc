"""The features that every Penstock cluster has, and their levels, which never change.

Clients use transaction version 2 and the consumer protocol of KIP-848 only if these are listed.
`metadata.version` is not here: it says which records Kafka's controllers write, and there are none.
"""

from typing import Final

LEVELS: Final[dict[str, int]] = {"group.version": 1, "transaction.version": 2}
"""Highest level by feature; it is the level in force."""
LOWEST_LEVEL: Final = 0
"""The lowest supported level in ApiVersions."""
