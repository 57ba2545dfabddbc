"""Push delivery: the session of the push protocol, and the server that carries it out."""
