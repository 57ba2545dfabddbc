"""The edge over HTTP: sessions of push clients."""
