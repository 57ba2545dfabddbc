"""`protect_memory`: keeps the memory of a broker with secrets from other processes (Linux).

The memory has private keys, session keys of TLS and passwords of logins. After `PR_SET_DUMPABLE` 0,
the kernel writes no core dump of the process, and processes of the same user cannot attach to it or
read its memory and its environment; root can. It is not undone. Systems without `prctl` are left as
they are. It does NOT erase secrets from the memory.
"""

import logging
import os
from typing import Final

from penstock.core.settings.tree import Settings

PR_SET_DUMPABLE: Final = 4

logger = logging.getLogger(__name__)


def has_secrets(settings: Settings) -> bool:
    """Whether a broker with these settings has secrets in its memory."""
    admin = settings.admin
    is_admin_secured = admin.enabled and (admin.certificate is not None or admin.auth != "none")
    return is_admin_secured or any(one.has_tls or one.has_sasl for one in settings.all_listeners)


def protect_memory(settings: Settings) -> bool:
    """Protect the memory of this process if it has secrets; return whether that was done."""
    if not has_secrets(settings):
        return False
    import ctypes  # not for brokers without secrets

    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is None:
        return False
    # All five arguments: as varargs, the missing ones would be whatever the registers have.
    if prctl(PR_SET_DUMPABLE, *map(ctypes.c_ulong, (0, 0, 0, 0))) == 0:
        return True
    reason = os.strerror(ctypes.get_errno())
    logger.warning("core dumps of this broker may have secrets: prctl failed: %s.", reason)
    return False
