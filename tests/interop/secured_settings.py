"""Settings of clients for the listeners of a secured broker: Penstock's own, and drivers."""

from tests.interop.driver_protocol import Security
from tests.oracle.certificates import Identity
from tests.oracle.secured_kafka import OAUTHBEARER, SASL_SSL, SSL, USER
from tests.oracle.secured_penstock import SecuredBroker


def own_settings(
    broker: SecuredBroker, protocol: str, mechanism: str = "", user: str = USER
) -> dict[str, str]:
    """Right settings, with the names of Kafka's Java client or of librdkafka."""
    chosen = {"bootstrap.servers": broker.bootstrap(protocol), "security.protocol": protocol}
    chosen["request.timeout.ms"] = "10000"
    if protocol in (SSL, SASL_SSL):
        chosen["ssl.ca.location"] = str(broker.ca)
    if protocol == SSL:
        chosen["ssl.certificate.location"] = str(broker.client.chain)
        chosen["ssl.key.location"] = str(broker.client.key)
    if mechanism:
        chosen["sasl.mechanism"] = mechanism
    if mechanism == OAUTHBEARER:
        chosen["sasl.oauthbearer.method"] = "oidc"
        chosen["sasl.oauthbearer.token.endpoint.url"] = broker.tokens.token_url
        chosen["sasl.oauthbearer.client.id"] = broker.tokens.client_id
        chosen["sasl.oauthbearer.client.secret"] = broker.tokens.client_secret
    elif mechanism:
        chosen["sasl.username"] = user
        chosen["sasl.password"] = broker.password(mechanism, user)
    return chosen


def driver_security(
    broker: SecuredBroker,
    protocol: str,
    mechanism: str = "",
    *,
    identity: Identity | None = None,
    user: str = "",
    password: str = "",
    token: str = "",
) -> Security:
    """Settings for a client's driver."""
    return {
        "bootstrap": broker.bootstrap(protocol),
        "protocol": protocol,
        "ca": str(broker.ca),
        "certificate": "" if identity is None else str(identity.chain),
        "key": "" if identity is None else str(identity.key),
        "mechanism": mechanism,
        "user": user,
        "password": password,
        "token": token,
    }
