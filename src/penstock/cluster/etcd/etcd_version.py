"""The version of an etcd member, and whether it has defects that Penstock cannot work around.

The version is asked for over HTTP: etcd's own call for it is denied to users without the root role.
It is advice only. A member that does not answer has no version and no problem.
"""

import asyncio
import contextlib
import json
import re
import ssl
from typing import Final

from penstock.cluster.etcd.etcd_options import Endpoint, EtcdOptions

_SECONDS: Final = 2.0
_BYTES_MAX: Final = 65_536
_FIXED: Final = {(3, 5): 28, (3, 6): 9}
"""The first releases without stale reads after a pause of a member."""
_NEWEST: Final = max(_FIXED)


async def read_version(options: EtcdOptions, endpoint: Endpoint) -> str:
    """Return the version, or an empty text if the member does not say it."""
    with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_SECONDS):
            context = await asyncio.to_thread(_context, options) if endpoint.has_tls else None
            reader, writer = await asyncio.open_connection(
                endpoint.host, endpoint.port, ssl=context, limit=_BYTES_MAX
            )
            try:
                request = f"GET /version HTTP/1.0\r\nHost: {endpoint.target}\r\n\r\n"
                writer.write(request.encode())
                answer = await reader.read(_BYTES_MAX)
            finally:
                writer.close()
        version = json.loads(answer.partition(b"\r\n\r\n")[2]).get("etcdserver", "")
        return version if isinstance(version, str) else ""
    return ""


def version_problem(version: str) -> str:
    """Return what is wrong with a version; empty if nothing is known."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})\.(\d{1,6})", version)
    if found is None:
        return ""
    major, minor, patch = (int(part) for part in found.groups())
    if (major, minor) > _NEWEST or patch >= _FIXED.get((major, minor), patch + 1):
        return ""
    return (
        f"version {version} can answer reads with old state after a pause, and can lose sessions "
        "that are kept alive; use 3.5.28, 3.6.9 or later in production"
    )


def _context(options: EtcdOptions) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.ca_file or None)
    if options.certificate_file:
        context.load_cert_chain(options.certificate_file, options.key_file)
    return context
