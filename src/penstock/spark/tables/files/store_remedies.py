"""What corrects an error of an object store: a remedy for each known reason (pure).

Guarantees: the reason is a code at its place in the error of Arrow, `deltalake` or boto. A name of
a key, bucket or folder is no reason, unless it repeats the whole form of such an error.

Arrow writes the codes of S3 in one way (`ACCESS_DENIED`), `deltalake` as S3 sends them
(`AccessDenied`), so codes are compared without case and underscores. It does NOT decide whether an
error passes: keys that are replaced in a moment have the same error as wrong ones.
"""

import re
from collections.abc import Mapping
from typing import Final

_NAMED: Final = "or the variable or file that it names"
_CODE: Final = re.compile(
    r"AWS Error (\w+)(?: \(HTTP status (\d{3})\))? during \w+ operation"
    r"(?:: Unable to parse ExceptionName: (\w+))?"
    r"|<Code>(\w+)</Code>"
    r"|\((\w+)\) when calling the \w+ operation"
    r"|(Could not connect to the endpoint URL): \"|(error sending request) for url \("
    r"|(incorrectly configured region)\s*\Z"
)
"""The codes at their places; the last one is the error's own, behind the names of keys."""
_ENDPOINT: Final = "Start the store, or correct its endpoint in table.catalog."
_REGION: Final = "Correct the region of the store in table.catalog: the bucket is in another."
_REMEDIES: Final[Mapping[str, str]] = {
    "signaturedoesnotmatch": f"Correct the secret key of the store in table.catalog, {_NAMED}.",
    "invalidaccesskeyid": f"Correct the access key of the store in table.catalog, {_NAMED}.",
    "expiredtoken": f"Renew the credentials of the store in table.catalog, {_NAMED}.",
    "accessdenied": "Let the keys of table.catalog read, write, list and delete objects there.",
    "nosuchbucket": "Create the bucket, or correct the warehouse.",
    "networkconnection": _ENDPOINT,
    "301": _REGION,
    "authorizationheadermalformed": _REGION,
    "permanentredirect": _REGION,
    "invalidtoken": "Correct the session token of the store in table.catalog, or renew it.",
    "requesttimetooskewed": "Correct the clock of this machine: the store refuses its time.",
    "could not connect to the endpoint url": _ENDPOINT,
    "error sending request": _ENDPOINT,
    "incorrectly configured region": _REGION,
}


def with_remedy(text: str, error: BaseException) -> str:
    """Return the text about an error of a store, with the remedy if its reason is known.

    The error is searched whole: the text may have its beginning only.
    """
    places = list(_CODE.finditer(str(error)))
    for code in places[-1].groups("") if places else ():
        remedy = _REMEDIES.get(code.lower().replace("_", "").removesuffix("exception"))
        if remedy is not None:
            return f"{text.rstrip('.')}. {remedy}"
    return text
