"""Tables in the Delta format, written with deltalake."""
