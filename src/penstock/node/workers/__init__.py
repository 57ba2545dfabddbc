"""`penstock serve --workers N`: a supervisor, and brokers that are its child processes."""
