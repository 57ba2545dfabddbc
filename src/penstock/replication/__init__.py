"""Services over the log: leaders, watermarks, parked requests; what every front door calls."""
