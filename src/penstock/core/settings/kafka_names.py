"""Names of Apache Kafka's broker settings, and what Penstock has in their place (pure).

A settings file that was copied from `server.properties` has Kafka's names. `kafka_remedy` returns
the sentence that leads from such a name to the setting of Penstock, or to its removal. Guarantees:
each name that a setting or a key of a listener declares as Kafka's is known. Other names are known
if they belong to security; the rest is NOT a list of all settings of Kafka.
"""

import re
from typing import Final

from penstock.core.settings.listener_declarations import (
    SECTION,
    NamedListener,
    TlsFileSettings,
)
from penstock.core.settings.setting_names import extra_text, kafka_name
from penstock.core.settings.tree import FIELDS

_LISTENER: Final = f"of a listener in [[{SECTION}]]"
_PEM: Final = (
    "Penstock reads PEM files: `openssl pkcs12 -in store.p12` prints the content of a PKCS12 "
    "store, and `keytool -importkeystore -deststoretype PKCS12` converts a JKS store."
)
_STORE: Final = f'Set tls = {{ certificate = "...", key = "..." }} {_LISTENER}. {_PEM}'
_TRUST: Final = f"Set client_ca and client_auth in tls {_LISTENER}. {_PEM}"
_FIXED_TLS: Final = (
    "Remove it: TLS is 1.2 or 1.3, with the cipher suites that are safe, and that cannot be "
    "changed."
)
_NO_CLASSES: Final = "Remove it: Java classes are not loaded."
_BROKERS: Final = (
    "Set cluster.listen_host and cluster.listen_port: other brokers connect there. TLS between "
    "brokers is cluster.tls_certificate, cluster.tls_key and cluster.tls_ca."
)
_USERS: Final = (
    "Remove it: users are not in the settings. `penstock user add` creates one; "
    "security.plain_verifier has other sources."
)

_REMEDIES: Final = {
    "authorizer.class.name": 'Set security.authorizer = "acl".',
    "broker.id": "Set node.id.",
    "connections.max.reauth.ms": "Set security.reauthentication_ms_max, or reauthentication_ms_max "
    f"{_LISTENER}.",
    "controller.quorum.bootstrap.servers": "Set cluster.etcd: the metadata of several brokers is "
    "in etcd.",
    "controller.quorum.voters": "Set cluster.etcd: the metadata of several brokers is in etcd.",
    "early.start.listeners": _BROKERS,
    "inter.broker.listener.name": _BROKERS,
    "listener.name": f"Set the keys {_LISTENER}.",
    "listener.security.protocol.map": f"Set protocol {_LISTENER}.",
    "listeners": f"Set name, host, port and protocol {_LISTENER}.",
    "advertised.listeners": f"Set advertised_host and advertised_port {_LISTENER}.",
    "max.connections": f"Set listener.connections_max, or connections_max {_LISTENER}.",
    "principal.builder.class": f"Set principal_mapping_rules and principal_source in tls "
    f"{_LISTENER}.",
    "sasl.client.callback.handler.class": _NO_CLASSES,
    "sasl.jaas.config": _USERS,
    "sasl.login.callback.handler.class": _NO_CLASSES,
    "sasl.login.class": _NO_CLASSES,
    "sasl.mechanism.controller.protocol": "Remove it: set cluster.etcd_user for etcd.",
    "sasl.mechanism.inter.broker.protocol": _BROKERS,
    "sasl.server.callback.handler.class": "Set security.plain_verifier, or [oidc] for tokens: Java "
    "classes are not loaded.",
    "sasl.server.max.receive.size": "Remove it: the size of a login is bounded.",
    "sasl.mechanism": f"Set mechanisms {_LISTENER}.",
    "security.inter.broker.protocol": _BROKERS,
    "security.protocol": f"Set protocol {_LISTENER}.",
    "security.providers": _NO_CLASSES,
    "ssl.allow.dn.changes": "Remove it: a renewed certificate is used if it is valid.",
    "ssl.allow.san.changes": "Remove it: a renewed certificate is used if it is valid.",
    "ssl.cipher.suites": _FIXED_TLS,
    "ssl.enabled.protocols": _FIXED_TLS,
    "ssl.endpoint.identification.algorithm": "Remove it: it is a setting of clients.",
    "ssl.engine.factory.class": _NO_CLASSES,
    "ssl.keymanager.algorithm": _NO_CLASSES,
    "ssl.keystore.location": _STORE,
    "ssl.keystore.password": f"Set key_password_file in tls {_LISTENER}, to a file with the "
    "password.",
    "ssl.keystore.type": _STORE,
    "ssl.principal.mapping.rules": f"Set principal_mapping_rules in tls {_LISTENER}, and "
    'admin.principal_mapping_rules for admin.auth = "mtls".',
    "ssl.protocol": _FIXED_TLS,
    "ssl.provider": _NO_CLASSES,
    "ssl.secure.random.implementation": _NO_CLASSES,
    "ssl.trustmanager.algorithm": _NO_CLASSES,
    "ssl.truststore.location": _TRUST,
    "ssl.truststore.password": _TRUST,
    "ssl.truststore.type": _TRUST,
}
_PREFIXES: Final = {
    "delegation.token.": "Remove it: delegation tokens are not supported.",
    "password.encoder.": "Remove it: the settings have no passwords.",
    "sasl.kerberos.": "Remove it: Kerberos (GSSAPI) is not supported.",
}
_OF_LISTENER: Final = re.compile(
    r"listener\.name\.[^.]+\.(?:(?:plain|gssapi|oauthbearer|scram-sha-(?:256|512))\.)?(?=.)"
)
"""Kafka's prefix for a setting of one listener, or of one mechanism of it."""


def kafka_remedy(name: str) -> str | None:
    """Return what to do with a name of Kafka; None if it is not known."""
    name = _OF_LISTENER.sub("", name.lower(), count=1)
    if name in _REMEDIES:
        return _REMEDIES[name]
    for prefix, remedy in _PREFIXES.items():
        if name.startswith(prefix):
            return remedy
    keys = [key for key in FIELDS if name and kafka_name(key) == name]
    if keys:
        return f"Set {' and '.join(keys)}."
    for model, place in ((NamedListener, _LISTENER), (TlsFileSettings, f"in tls {_LISTENER}")):
        for key, field in model.model_fields.items():
            if name and extra_text(field, "kafka") == name:
                return f"Set {key} {place}."
    return None
