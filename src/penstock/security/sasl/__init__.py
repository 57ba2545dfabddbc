"""The broker's side of SASL: mechanisms, the exchange of a connection, and checks of tokens."""
