"""One look at a file, for `core.file_watch`.

Polling, not inotify: one `stat` each second costs nothing measurable, works on every file system
and through every mount, and needs no library and no thread. A watch of the file itself would lose
it when an editor renames another over it or Kubernetes swaps a link. An operator who cannot wait
two seconds sends SIGHUP.
"""

from pathlib import Path

from penstock.core.file_watch import Look


def look_at(path: str) -> Look | None:
    """The present state of the file; None when it does not exist or cannot be read."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return Look(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
