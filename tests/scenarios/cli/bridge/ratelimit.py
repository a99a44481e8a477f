"""Asks the rate limit service at a Unix socket, or by TLS at an address, and checks what it answers."""

import sys

import grpc
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

OK, OVER = 1, 2
if len(sys.argv) == 2:
    # The authority that gRPC has for a Unix socket is no host.
    channel = grpc.insecure_channel(
        "unix:" + sys.argv[1], options=[("grpc.default_authority", "bridge")]
    )
else:
    files = [open(name, "rb").read() for name in sys.argv[2:]]
    channel = grpc.secure_channel(
        sys.argv[1],
        grpc.ssl_channel_credentials(*files),
        options=[("grpc.ssl_target_name_override", "limiter-bridge")],
    )
service = rls_pb2_grpc.RateLimitServiceStub(channel)


def call(*descriptors, domain="edge", hits=0, own=None):
    """A call with these descriptors, which are dictionaries."""
    message = rls_pb2.RateLimitRequest(domain=domain, hits_addend=hits)
    for entries in descriptors:
        descriptor = message.descriptors.add()
        for key, value in entries.items():
            descriptor.entries.add(key=key, value=value)
        if own is not None:
            descriptor.hits_addend.value = own
    return message


def ask(*descriptors, **more):
    """The code of the call, and the code and what is left of each descriptor."""
    answer = service.ShouldRateLimit(call(*descriptors, **more), timeout=20)
    left = [(it.code, it.limit_remaining) for it in answer.statuses]
    return answer.overall_code, left, answer


def refused(status, *descriptors, **more):
    try:
        service.ShouldRateLimit(call(*descriptors, **more), timeout=20)
    except grpc.RpcError as error:
        assert error.code() == status, error
        return
    raise AssertionError("it was answered")


def same(one, other):
    assert one == other, (one, other)


user, region = {"user": "7"}, {"region": "eu", "remote_address": "192.0.2.9"}

# A peek, a call without hits, one that is too dear, and the last that passes.
same(ask(user, own=0)[:2], (OK, [(OK, 3)]))
code, left, answer = ask(user)
same((code, left), (OK, [(OK, 2)]))
limit = answer.statuses[0].current_limit
same((limit.name, limit.requests_per_unit, limit.Unit.Name(limit.unit)), ("user", 3, "YEAR"))
fields = {it.key: it.value for it in answer.response_headers_to_add}
same(fields["ratelimit-policy"], '"user";q=3;w=31536000')
code, left, answer = ask(user, hits=3)
same((code, left), (OVER, [(OVER, 2)]))
assert b"quota-exceeded" in answer.raw_body
fields = {it.key for it in answer.response_headers_to_add}
assert {"retry-after", "ratelimit", "content-type"} <= fields, fields
assert answer.statuses[0].duration_until_reset.seconds > 0
same(ask(user, hits=9, own=1)[:2], (OK, [(OK, 1)]))

# All descriptors or none; another domain; the limit that only counts refuses nothing.
same(ask(user, region, hits=2)[:2], (OVER, [(OVER, 1), (OK, 5)]))
same(ask(user, region)[:2], (OK, [(OK, 0), (OK, 4)]))
same(ask(user, region)[:2], (OVER, [(OVER, 0), (OK, 4)]))
same(ask(user, domain="other")[:2], (OK, [(OK, 0)]))
for left in (3, 2, 1, 0):
    same(ask(region)[:2], (OK, [(OK, left)]))
same(ask(region, {"remote_address": "192.0.2.8"})[:2], (OVER, [(OVER, 0), (OK, 0)]))
code, left, answer = ask({"remote_address": "192.0.2.66"})
same((code, left, list(answer.statuses[0].ListFields())[0][1]), (OVER, [(OVER, 0)], OVER))

# What is not known is skipped: field 99 of the call.
raw = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
answer = rls_pb2.RateLimitResponse.FromString(
    raw(call(user, own=0).SerializeToString() + b"\x9a\x06\x02ab", timeout=20)
)
same(answer.overall_code, OVER)

# Hits that are given back: field 4 of a descriptor, which the messages of this client lack.
message = call(user, own=2)
message.descriptors[0].MergeFromString(b"\x20\x01")
answer = service.ShouldRateLimit(message, timeout=20)
same([(it.code, it.limit_remaining) for it in answer.statuses], [(OK, 2)])

# Bounds.
wrong = grpc.StatusCode.INVALID_ARGUMENT
refused(wrong)
refused(wrong, *[user] * 33)
refused(wrong, {str(key): "x" for key in range(129)})
refused(wrong, {"remote_address": "x"})
refused(grpc.StatusCode.OUT_OF_RANGE, {"user": "x" * (64 << 10)})
same(len(ask(*[{"user": str(it)} for it in range(32)], own=0)[1]), 32)
unknown = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/Other")
try:
    unknown(b"", timeout=20)
    raise AssertionError("it was answered")
except grpc.RpcError as error:
    same(error.code(), grpc.StatusCode.UNIMPLEMENTED)

# Health: field 1 of the question is the name, and of the answer whether it serves.
health = channel.unary_unary("/grpc.health.v1.Health/Check")
for name in (b"", b"limiter.bridge"):
    question = b"\x0a" + bytes([len(name)]) + name if name else b""
    same(health(question, timeout=20), b"\x08\x01")
try:
    health(b"\x0a\x01x", timeout=20)
    raise AssertionError("it was answered")
except grpc.RpcError as error:
    same(error.code(), grpc.StatusCode.NOT_FOUND)
