"""What corrects an error of an object store: a remedy for each known reason (pure).

Arrow writes the codes of S3 in one way (`ACCESS_DENIED`), `deltalake` as S3 sends them
(`AccessDenied`), so texts are compared without case and underscores. It does NOT decide whether an
error passes: keys that are replaced in a moment have the same error as wrong ones.
"""

from collections.abc import Mapping
from typing import Final

_NAMED: Final = "or the variable or file that it names"
_REMEDIES: Final[Mapping[str, str]] = {
    "signaturedoesnotmatch": f"Correct the secret key of the store in table.catalog, {_NAMED}.",
    "invalidaccesskeyid": f"Correct the access key of the store in table.catalog, {_NAMED}.",
    "expiredtoken": f"Renew the credentials of the store in table.catalog, {_NAMED}.",
    "accessdenied": "Let the keys of table.catalog read, write, list and delete objects there.",
    "nosuchbucket": "Create the bucket, or correct the warehouse.",
    "networkconnection": "Start the store, or correct its endpoint in table.catalog.",
    "httpstatus301": "Correct the region of the store in table.catalog: the bucket is in another.",
}


def with_remedy(text: str) -> str:
    """Return the text of a store's error, with the remedy if the reason is known."""
    found = "".join(sign for sign in text.lower() if sign.isalnum())
    for reason, remedy in _REMEDIES.items():
        if reason in found:
            return f"{text.rstrip('.')}. {remedy}"
    return text
