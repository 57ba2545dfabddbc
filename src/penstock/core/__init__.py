"""Ground: values, errors, clock, limits, settings and metrics; imports nothing of ours."""
