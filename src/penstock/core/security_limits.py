"""The bounds of access rules and of users with a password, each with its unit and its reason.

They belong to the table of `core.limits`, which is full. All of them are fixed.
"""

from typing import Final

ACLS_MAX: Final = 50_000
"""Access rules in the store. Each is a value in the memory of every broker, about 500 bytes."""

ACL_TEXT_BYTES_MAX: Final = 1_024
"""Resource name, principal or host of an access rule, in bytes each. Kafka accepts 32,767, and the
largest number of such rules would be 5 GB. Names of topics have at most 249."""

ACL_SCANS_PER_REQUEST_MAX: Final = 32
"""Filters of one DeleteAcls that are compared with every rule: 50 to 200 ms for the largest number
of rules and each filter, in slices, while no other change of the metadata is carried out. Tools
send up to ten. A filter that names one whole rule is a single look-up."""

SCRAM_CREDENTIALS_MAX: Final = 50_000
"""SCRAM credentials in the store, one for each user and mechanism: about 600 bytes of memory."""

SCRAM_CHANGES_PER_REQUEST_MAX: Final = 10_000
"""SCRAM credentials that one request changes: as many as access rules."""

SCRAM_SALT_BYTES_MAX: Final = 1_024
"""Salt of a SCRAM credential. Tools create 16 to 64 bytes, and clients reject much longer ones."""

USER_NAME_BYTES_MAX: Final = 255
"""Name of a user with a SCRAM credential, in UTF-8."""

UNPROVEN_BYTES_MAX: Final = 8_388_608
"""Received bytes of all clients that have not logged in; above, the oldest are disconnected."""
