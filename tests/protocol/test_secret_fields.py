"""Messages with secrets do not show them."""

from penstock.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def test_no_repr_shows_a_secret() -> None:
    upsertion = ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"canary"
    )
    shown = [
        repr(SaslAuthenticateRequest(auth_bytes=b"\0alice\0canary")),
        repr(SaslAuthenticateResponse(auth_bytes=b"canary")),
        repr(upsertion),
    ]
    assert "alice" in shown[2]
    assert not [text for text in shown if "canary" in text]
