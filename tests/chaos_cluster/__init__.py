"""A cluster of real processes under real faults (marker `cluster_chaos`, needs root).

`network` has a namespace for each machine on one bridge, and cuts between them; `machines` are
processes with a disk and a power switch of their own; `cluster` is three etcd members and three
brokers on such machines; `faults` are the faults; `workload` is the load and its check, with
`foreign_clients` in Java, Go and JavaScript beside Python; `replicas` compares the files of
all replicas. They are NOT part of the fast tests: `make chaos-cluster`.
"""
