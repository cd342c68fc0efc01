"""Messages and services of gRPC under the names that Ray gives them: `serve_pb2` and `serve_pb2_grpc`."""

__all__: list[str] = []
