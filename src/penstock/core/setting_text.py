"""The value of a boolean setting from the text of a client (pure).

Clients may write it in capitals and with spaces around it, as in Kafka; it is stored as they wrote
it. It does not check: `cluster.configs` refuses any other text before it is stored.
"""


def is_true(text: str | None) -> bool:
    """Return whether a setting is on; None, for no value, is off."""
    return text is not None and text.strip().lower() == "true"
