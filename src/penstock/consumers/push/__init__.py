"""Consumers over the push protocol of a Penstock broker."""
