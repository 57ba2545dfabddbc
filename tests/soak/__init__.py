"""The soak: a broker at its limits for half an hour, and four things that must hold meanwhile.

Nothing acknowledged is lost; memory is flat; everything that clients saw refused is counted by the
broker, and nothing else is; and clients that behave are answered nearly as quickly as without the
others. `python -m tests.soak --minutes 30`, or `make soak`.

`scene` has the numbers: small limits, so that little load reaches them. `host` is `penstock serve`
with a door for its metrics. Three kinds of client run as processes of their own (`worker`): one is
measured (`well_behaved`), real clients have groups and transactions (`real_clients`), and others
break rules and count the broker's reactions (`abuse`). `run` leads them through the phases, and
`verdict` names the broken promises. It needs root: the disk that fills up is a real one.
`unguarded` is the broker without a safeguard, which the verdict must notice (`test_soak_guards`).
"""
