"""The push protocol on the wire: frames and records; no IO."""
