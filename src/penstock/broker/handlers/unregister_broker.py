"""UnregisterBroker: the cluster forgets a broker that has stopped and has no replicas.

Apache Kafka also forgets a broker that runs or has replicas; here such a request is rejected with
POLICY_VIOLATION (docs/decisions/0027).
"""

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.error_mapping import Outcome, outcome_of
from penstock.core.errors import PenstockError
from penstock.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.security.acls.values import Operation


async def handle(
    request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    """Forget the broker, or return the reason why not."""
    if not context.allows_cluster(Operation.ALTER):
        return _answer(CLUSTER_DENIED)
    try:
        await context.services.brokers.forget(request.broker_id)
    except PenstockError as error:
        return _answer(outcome_of(error))
    return _answer(outcome_of(None))


def _answer(outcome: Outcome) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=outcome.code, error_message=outcome.message)
