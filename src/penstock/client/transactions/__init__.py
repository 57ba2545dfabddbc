"""Administration of transactions, and transactions of producers."""
