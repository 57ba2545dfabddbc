"""Divides the descriptors of this process between files and connections.

Every connection and every open segment uses a descriptor, and the system limits them. The soft
limit is raised as far as needed and as the hard limit allows. If that is not enough, connections
and files get fewer, and a log message says how to change it. A rejected connection or a reopened
file costs little; a write without a descriptor costs much.

It does not count descriptors of other code in the process; it reserves some for that code.
"""

import logging
import resource
from typing import Final, NamedTuple

from penstock.core.limits import DESCRIPTORS_RESERVED, FILES_OPEN_MAX

logger = logging.getLogger(__name__)

_FILES_SHARE: Final = 4
"""The share of files when there are too few descriptors: a quarter, as in the defaults."""
_LEAST: Final = 16
"""The minimum for each, however low the limit is: a broker with less is useless."""


class Shares(NamedTuple):
    """The descriptors of files and of connections."""

    files: int
    connections: int


def claim_descriptors(connections_max: int, *, files_max: int = FILES_OPEN_MAX) -> Shares:
    """Raise the limit of this process as far as needed and allowed, and return the shares."""
    wanted = DESCRIPTORS_RESERVED + files_max + connections_max
    limit = _raise_limit(wanted)
    shares = share(limit, connections_max, files_max)
    if shares != (files_max, connections_max):
        logger.warning(
            "only %d files may be open, and %d are wanted: at most %d connections are taken and "
            "%d segment files kept open. Raise the limit with `ulimit -n %d` or with LimitNOFILE "
            "of the service, or lower listener.connections_max.",
            limit,
            wanted,
            shares.connections,
            shares.files,
            wanted,
        )
    return shares


def connections_within(connections_max: int, files: int) -> int:
    """Return the number of connections that fit beside `files`, which are claimed already."""
    limit = _raise_limit(DESCRIPTORS_RESERVED + files + connections_max)
    return min(connections_max, max(_LEAST, limit - DESCRIPTORS_RESERVED - files))


def share(limit: int, connections_max: int, files_max: int) -> Shares:
    """Return the shares of `limit` descriptors."""
    left = limit - DESCRIPTORS_RESERVED
    if left >= files_max + connections_max:
        return Shares(files_max, connections_max)
    files = min(files_max, max(_LEAST, left // _FILES_SHARE, left - connections_max))
    return Shares(files, min(connections_max, max(_LEAST, left - files)))


def _raise_limit(wanted: int) -> int:
    """Raise the soft limit up to `wanted` where the hard one allows it; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if allowed > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        except (OSError, ValueError):
            # Some systems have a second limit below the hard one.
            return soft
    return max(soft, allowed)
