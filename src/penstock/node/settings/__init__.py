"""The settings in force, the reload of the settings file, and its declared topics."""
