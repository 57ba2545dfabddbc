"""`load_soon`: import, on a thread, the modules that first requests would import on the loop.

A broker starts without the modules that its clients may never need. Importing the group modules at
the first request took 100 ms, and other clients waited.
"""

import importlib
import logging
import threading
import time
from typing import Final

from penstock.broker.handlers import HANDLERS

logger = logging.getLogger(__name__)

REST_SECONDS: Final = 0.005
"""Pause between two modules, so that requests are served meanwhile."""
COORDINATORS: Final = "penstock.node.coordination.coordinator_kinds"


def load_soon() -> threading.Thread:
    """Start the import on a thread and return the thread, which ends by itself."""
    thread = threading.Thread(target=load, name="penstock-warming", daemon=True)
    thread.start()
    return thread


def load() -> None:
    """Import every module that the start left out."""
    handlers = (f"penstock.broker.handlers.{row.module_name}" for row in HANDLERS.values())
    for name in (COORDINATORS, *(name for name in handlers if not name.endswith("."))):
        try:
            importlib.import_module(name)
        except Exception:
            # The first request that needs it gets the same error and reports it.
            logger.exception("%s could not be imported", name)
        time.sleep(REST_SECONDS)
