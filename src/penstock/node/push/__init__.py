"""Push on this node: the ports of `edge.push`, its listeners, publish and subscribe in process."""
