"""`untracked`: a large container that garbage collections do not visit.

A collection visits every element of each young container: a dictionary with 60,000 entries costs 7
ms twice, and no thread runs meanwhile. A container that only reference counts free needs no visit.
It must not be part of a cycle: such a cycle would never be found.

Python does this itself for tuples of plain values; `PyObject_GC_UnTrack` of its C API does it for
any container. An interpreter without that function tracks the container, and only time is lost.
"""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

Container = TypeVar("Container")


def untracked(container: Container) -> Container:
    """Return the container, which no collection visits from now on.

    A dictionary is visited again after an entry is added; a list is not.
    """
    _untrack_function()(container)
    return container


@cache
def _untrack_function() -> Callable[[object], None]:
    # Imported at first use: a command that stores nothing does not need it.
    import ctypes

    try:
        untrack = ctypes.pythonapi.PyObject_GC_UnTrack
    except AttributeError:
        return _keep_tracked
    untrack.argtypes = [ctypes.py_object]
    untrack.restype = None
    return untrack


def _keep_tracked(_: object) -> None:
    """Do nothing: this interpreter has no such function."""
