"""Services over the log, called by every front door: leaders, watermarks, parked requests."""
