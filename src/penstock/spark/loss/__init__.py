"""Data loss: records that a query can no longer read, and how tasks report them."""
