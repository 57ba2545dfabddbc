"""The settings in force, the settings file read again, and the topics that it declares."""
