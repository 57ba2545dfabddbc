"""The parts of a leader that depend on the reports of followers, for consumers and deletions."""
