"""`JwtKeys`: the public keys of an identity provider, and signatures of its tokens (pure).

Guarantees: a token is accepted only with one of `ALGORITHMS`, all of them asymmetric, and only with
a key of the given set that has the id (`kid`) in the token's header. A key of a set is used with
the algorithms of its own kind, and with its own one if it names one. Keys, addresses and
certificates in a header (`jwk`, `jku`, `x5u`, `x5c`) are ignored, and a token with critical
extensions (`crit`) or an unencoded payload (`b64`) is refused. Symmetric keys, encryption keys, RSA
keys below `RSA_BITS_MIN` and keys without an id are left out of a set.

The package joserfc does the cryptography; it is imported at the first use, by this module only. A
verification takes about 0.1 ms. It does NOT check claims: `token_claims` does. It fetches nothing.
"""

import base64
import binascii
import functools
import json
from typing import Any, Final, NoReturn

from penstock.core.errors import ConfigError
from penstock.security.sasl.bearer_server import TOKEN_BYTES_MAX
from penstock.security.sasl.refused_login import RefusedLoginError
from penstock.security.secret import Secret

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
KEYS_MAX: Final = 100
KEY_SET_BYTES_MAX: Final = 1_048_576
KEY_ID_CHARACTERS_MAX: Final = 1_024
HEADER_BYTES_MAX: Final = 8_192
"""Of a token, in base64: room for a certificate chain, which is ignored."""
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 8_192
"""A verification with a larger key would hold the event loop."""

_ALGORITHMS_OF: Final = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA", "Ed25519"),
}
_PUBLIC_MEMBERS: Final = ("kty", "crv", "n", "e", "x", "y")
"""A private part of a key is not imported, even if a provider publishes it."""
_REFUSED_HEADERS: Final = ("crit", "b64")


class _JwtKey:
    """A public key and the algorithms that it may be used with."""

    __slots__ = ("algorithms", "key")

    def __init__(self, key: Any, algorithms: tuple[str, ...]) -> None:  # noqa: ANN401 - joserfc's
        self.key = key
        self.algorithms = algorithms


class JwtKeys:
    """The keys of one identity provider."""

    __slots__ = ("_keys",)

    def __init__(self, keys: dict[str, _JwtKey]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key_id: str) -> bool:
        return key_id in self._keys

    def verify(self, token: Secret) -> dict[str, object]:
        """Return the claims of a token whose signature is right; raise `RefusedLoginError`."""
        header = _header(token)
        known = self._keys.get(_key_id(header))
        if known is None:
            _refuse("its key is unknown (kid)")
        if header.get("alg") not in known.algorithms:
            _refuse("its algorithm is not one of its key (alg)")
        from joserfc import errors, jws

        try:
            verified = jws.deserialize_compact(token.reveal(), known.key, registry=_registry())
            claims = json.loads(verified.payload, parse_constant=_no_constant)
        except (errors.JoseError, ValueError, RecursionError):
            # Not the text of the error: it may repeat parts of the token.
            _refuse("its signature is wrong, or its claims cannot be read")
        if not isinstance(claims, dict):
            _refuse("its claims are not an object")
        return claims


NO_KEYS: Final = JwtKeys({})


def key_id_of(token: Secret) -> str:
    """Return the id of the key in a token's header; raise `RefusedLoginError`."""
    return _key_id(_header(token))


def parse_keys(document: bytes) -> JwtKeys:
    """Return the usable keys of a JSON Web Key Set; raise `ConfigError` if there is none."""
    if len(document) > KEY_SET_BYTES_MAX:
        raise _bad_set(f"it has more than {KEY_SET_BYTES_MAX:,} bytes, the limit")
    try:
        found = json.loads(document)
    except (ValueError, RecursionError):
        raise _bad_set("it is not JSON") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise _bad_set("it has no list 'keys'")
    if len(listed) > KEYS_MAX:
        raise _bad_set(f"it has {len(listed):,} keys, at most {KEYS_MAX} are allowed")
    keys: dict[str, _JwtKey] = {}
    for member in listed:
        if not isinstance(member, dict):
            continue
        key_id, key = member.get("kid"), _parse_key(member)
        if isinstance(key_id, str) and 0 < len(key_id) <= KEY_ID_CHARACTERS_MAX and key is not None:
            keys.setdefault(key_id, key)
    if not keys:
        raise _bad_set(f"it has no key with an id (kid) for signatures among {len(listed)}")
    return JwtKeys(keys)


def _parse_key(member: dict[str, Any]) -> _JwtKey | None:
    """Return a key of a set; None for one that cannot verify signatures."""
    if member.get("use", "sig") != "sig":
        return None
    operations = member.get("key_ops")
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        return None
    kind, curve = member.get("kty"), member.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        return None
    algorithms = _ALGORITHMS_OF.get((kind, curve), ())
    own = member.get("alg")
    if own is not None:
        algorithms = tuple(name for name in algorithms if name == own)
    if not algorithms or (kind == "RSA" and not _is_fit_rsa(member.get("n"))):
        return None
    from joserfc import errors, jwk

    try:
        key = jwk.import_key({name: member[name] for name in _PUBLIC_MEMBERS if name in member})
    except (errors.JoseError, ValueError, TypeError, OverflowError, KeyError):
        return None
    return _JwtKey(key, algorithms)


def _is_fit_rsa(modulus: object) -> bool:
    """Whether the size of an RSA key is within the bounds."""
    if not isinstance(modulus, str) or len(modulus) > RSA_BITS_MAX:
        return False
    try:
        number = int.from_bytes(_decoded(modulus))
    except ValueError:
        return False
    return RSA_BITS_MIN <= number.bit_length() <= RSA_BITS_MAX


def _header(token: Secret) -> dict[str, Any]:
    text = token.reveal()
    if len(text) > TOKEN_BYTES_MAX:
        _refuse(f"it has {len(text)} bytes, at most {TOKEN_BYTES_MAX} are allowed")
    segment, _, _ = text.partition(".")
    if text.count(".") != 2 or len(segment) > HEADER_BYTES_MAX:
        _refuse("it is not a signed JSON Web Token")
    try:
        header = json.loads(_decoded(segment), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        _refuse("its header cannot be read")
    if not isinstance(header, dict):
        _refuse("its header is not an object")
    if any(name in header for name in _REFUSED_HEADERS):
        _refuse("it has critical extensions (crit)")
    if header.get("alg") not in ALGORITHMS:
        _refuse("its algorithm is not allowed (alg)")
    return header


def _key_id(header: dict[str, Any]) -> str:
    key_id = header.get("kid")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= KEY_ID_CHARACTERS_MAX:
        _refuse("it does not name its key (kid)")
    return key_id


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError("invalid base64") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


@functools.cache
def _registry() -> Any:  # noqa: ANN401 - joserfc's class is imported at the first use
    from joserfc import errors, jws

    class Registry(jws.JWSRegistry):
        """The pinned algorithms, without a warning for `EdDSA`, which providers still use."""

        max_header_length = HEADER_BYTES_MAX

        def get_alg(self, name: str) -> Any:  # noqa: ANN401 - joserfc's
            if name not in ALGORITHMS:
                raise errors.UnsupportedAlgorithmError(name)
            return self.algorithms[name]

    # Providers add fields of their own to headers: unknown ones are ignored, as RFC 7515 requires.
    return Registry(algorithms=ALGORITHMS, strict_check_header=False)


def _bad_set(problem: str) -> ConfigError:
    return ConfigError(
        f"the key set of the identity provider cannot be used: {problem}.",
        hint="Set oidc.jwks to the jwks_uri of the provider, or to a file with the answer of it.",
    )


def _refuse(reason: str) -> NoReturn:
    raise RefusedLoginError(f"the token is refused: {reason}")
