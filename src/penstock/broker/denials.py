"""Denied requests: Kafka's code and Kafka's words for each type of resource (pure).

Clients show these messages. A message names neither the resource nor the missing permission: the
log of denials has both.
"""

from typing import Final

from penstock.broker.error_mapping import Outcome
from penstock.protocol.error_codes import ErrorCode

TOPIC_DENIED: Final = Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
GROUP_DENIED: Final = Outcome(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
TRANSACTIONAL_ID_DENIED: Final = Outcome(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
)
CLUSTER_DENIED: Final = Outcome(
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
)
