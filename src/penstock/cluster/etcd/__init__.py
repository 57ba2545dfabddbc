"""The metadata store of several brokers: etcd, reached by gRPC. Needs the extra `cluster`."""
