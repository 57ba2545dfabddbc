"""The link of one broker with the metadata store: it follows it, writes to it, and is a member."""
