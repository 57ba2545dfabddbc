"""The gRPC gateway. Nothing here is imported before `edge.grpc_port` is set."""
