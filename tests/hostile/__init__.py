"""Hostile neighbours: one client attacks the broker while a well-behaved one is measured.

Each attack chooses something that the broker does for a client and maximizes its price: bytes that
unfold, records in a batch, partitions in a request, requests that wait. The suite holds the broker
to five promises during each attack and during random mixes of them:

- no pause of the event loop is longer than 50 ms of CPU time;
- p99 of a well-behaved producer and consumer is at most three times its value without the attack;
- memory stays below a bound;
- nothing that was acknowledged is lost;
- SIGTERM in the middle of the attack ends the process within five seconds.

`payloads` builds the batches, `attacks` and `group_attacks` send them (`attacker` is their
process), `neighbour` is the measured client, `host` the broker with a meter on its loop, `siege`
runs all of them, and `verdict` judges. `python -m tests.hostile --minutes 10`, or `make hostile`.
"""
