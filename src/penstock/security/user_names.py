"""The names that users with a password may have (pure).

A name is accepted only in the form that SASLprep (RFC 4013) returns, so that two names which look
equal cannot be two users: a rule that denies one of them would not apply to the other. Names with
control characters, unassigned characters or mixed directions of writing are rejected. Apache Kafka
accepts all of them.

It does NOT prepare names: a name that differs from its prepared form is an error, because a client
would send the other form.
"""

import stringprep
import unicodedata
from collections.abc import Callable
from typing import Final

from penstock.core.security_limits import USER_NAME_BYTES_MAX

_PROHIBITED: Final[tuple[Callable[[str], bool], ...]] = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def name_problem(name: str) -> str:
    """Return the reason why a user may not have this name; empty if it may."""
    if not name:
        return "Username must not be empty"
    if len(name.encode("utf-8", "surrogatepass")) > USER_NAME_BYTES_MAX:
        return f"Username must not be longer than {USER_NAME_BYTES_MAX} bytes"
    is_canonical = name.isprintable() if name.isascii() else _is_canonical(name)
    return "" if is_canonical else "Username must not change when it is prepared with SASLprep"


def _is_canonical(name: str) -> bool:
    if any(stringprep.in_table_b1(one) for one in name):
        return False
    if unicodedata.ucd_3_2_0.normalize("NFKC", name) != name:
        return False
    if any(is_in_table(one) for one in name for is_in_table in _PROHIBITED):
        return False
    if any(stringprep.in_table_a1(one) for one in name):
        return False
    return _has_one_direction(name)


def _has_one_direction(name: str) -> bool:
    if not any(stringprep.in_table_d1(one) for one in name):
        return True
    if any(stringprep.in_table_d2(one) for one in name):
        return False
    return stringprep.in_table_d1(name[0]) and stringprep.in_table_d1(name[-1])
