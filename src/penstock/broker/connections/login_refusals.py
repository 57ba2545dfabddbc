"""`illegal_state`: the answer to a request of another API in the middle of a login (pure).

Guarantees: the request is not decoded, and no handler is imported for it: the answer depends on API
and version only. It is empty but for ILLEGAL_SASL_STATE, where the version has an error code of the
whole answer. Kafka repeats the topics or groups of the request with that code each. Produce has no
answer: its client may not expect one (acks=0), and only the body would say so.
"""

import importlib
import uuid
from dataclasses import MISSING, fields
from functools import cache
from typing import Final

from penstock.protocol import codec
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.encoder_source import LostFieldError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.structure_fields import StructureField, structure_fields

_EMPTY: Final[dict[object, object]] = {
    bool: False,
    bytes: b"",
    float: 0.0,
    int: 0,
    str: "",
    uuid.UUID: uuid.UUID(int=0),
}


@cache
def illegal_state(api_key: int, version: int) -> Message | None:
    """Return the answer to any request of this API and version; None if there is none."""
    if api_key == ApiKey.PRODUCE:
        return None
    response = _response_class(ApiKey(api_key))
    kinds = {field.name: field for field in structure_fields(response)}
    code = {"error_code": ErrorCode.ILLEGAL_SASL_STATE} if "error_code" in kinds else {}
    texts = {name: "" for name, field in kinds.items() if field.element is str}
    # Older versions may have no code of the whole answer, or no null for a text.
    for values in (code, {**texts, **code}, {}, texts):
        message: Message = response(**{**_required(response), **values})
        try:
            codec.encode_response(message, version)
        except LostFieldError:
            continue
        return message
    return None


def _response_class(api_key: ApiKey) -> type:
    name = api_key.name
    module = importlib.import_module(f"penstock.protocol.messages.{name.lower()}")
    found: type = getattr(module, name.title().replace("_", "") + "Response")
    return found


def _required(owner: type) -> dict[str, object]:
    """Return empty values of the fields that have no default."""
    has_default = {field.name: field.default is not MISSING for field in fields(owner)}
    return {
        field.name: _empty(field)
        for field in structure_fields(owner)
        if not has_default[field.name]
    }


def _empty(field: StructureField) -> object:
    if field.is_array:
        return ()
    if field.structure is not None:
        return field.structure(**_required(field.structure))
    return _EMPTY.get(field.element, 0)
