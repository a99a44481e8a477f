"""Asks the rate limit service at a Unix socket as a user that may not, and checks that it is told so."""

import sys

import grpc
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

channel = grpc.insecure_channel(
    "unix:" + sys.argv[1], options=[("grpc.default_authority", "bridge")]
)
message = rls_pb2.RateLimitRequest(domain="edge")
message.descriptors.add().entries.add(key="user", value="7")
try:
    rls_pb2_grpc.RateLimitServiceStub(channel).ShouldRateLimit(message, timeout=20)
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.PERMISSION_DENIED, error
    assert "--trusted" in error.details(), error
else:
    raise AssertionError("it was answered")
