"""Share groups (KIP-932): sessions, and the answers to ShareFetch and ShareAcknowledge."""
