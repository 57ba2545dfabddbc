"""`penstock materialize`: topics as tables of a SQLite file."""
