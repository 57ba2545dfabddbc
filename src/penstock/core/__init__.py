"""The lowest layer: values, errors, clock, limits, settings, metrics; imports no other layer."""
