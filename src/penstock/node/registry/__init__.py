"""The registry of sites: its process, and the client of a broker."""
