"""A stock gRPC client that knows nothing but the address: everything else comes from server reflection.

    grpc_watch.py SOCKET_OR_HOST:PORT [--token TOKEN] [--metrics]

Prints one JSON object per line: health answers, the service's methods, the status, then every item of Watch
until the stream ends. With --metrics the page is fetched and read by Prometheus' own parser first.
"""

import argparse
import json
import socket
import sys

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from prometheus_client.openmetrics.parser import text_string_to_metric_families

SERVICE = "tsbench.v1.Agent"


def say(kind, value):
    print(json.dumps({kind: value}), flush=True)


def fetch_metrics(address, token):
    if address.startswith("/"):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
    else:
        host, port = address.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)))
    connection.settimeout(10)
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    connection.sendall(f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{bearer}\r\n".encode())
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
    head, body = answer.split(b"\r\n\r\n", 1)
    status = head.split(b"\r\n", 1)[0].decode()
    assert " 200 " in status, status
    assert b"transfer-encoding" not in head.lower(), head
    return body.decode()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--token")
    parser.add_argument("--metrics", action="store_true")
    args = parser.parse_args()

    if args.metrics:
        families = {family.name: family.type for family in text_string_to_metric_families(fetch_metrics(args.address, args.token))}
        say("metrics", families)

    target = f"unix:{args.address}" if args.address.startswith("/") else args.address
    # Without this grpcio sends the escaped path of the socket as authority, which no HTTP/2 server takes.
    channel = grpc.insecure_channel(target, options=[("grpc.default_authority", "localhost")])
    metadata = [("authorization", f"Bearer {args.token}")] if args.token else []

    database = ProtoReflectionDescriptorDatabase(channel) if not args.token else None
    if database is None:
        say("note", "the reflection client cannot send metadata; health only")
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", SERVICE, "tokenspeed"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=10, metadata=metadata)
        say("health", {name: health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)})
    if database is None:
        return

    say("services", sorted(database.get_services()))
    pool = descriptor_pool.DescriptorPool(database)
    service = pool.FindServiceByName(SERVICE)
    say("methods", {method.name: [method.input_type.full_name, method.output_type.full_name] for method in service.methods})

    def message(name):
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))

    def path(method):
        return f"/{SERVICE}/{method}"

    def as_dict(item):
        return json_format.MessageToDict(item, preserving_proto_field_name=True)

    get_status = channel.unary_unary(
        path("GetStatus"),
        request_serializer=message("tsbench.v1.GetStatusRequest").SerializeToString,
        response_deserializer=message("tsbench.v1.GetStatusResponse").FromString,
    )
    say("status", as_dict(get_status(message("tsbench.v1.GetStatusRequest")(), timeout=10)))

    watch = channel.unary_stream(
        path("Watch"),
        request_serializer=message("tsbench.v1.WatchRequest").SerializeToString,
        response_deserializer=message("tsbench.v1.WatchResponse").FromString,
    )
    request = message("tsbench.v1.WatchRequest")(from_seq=1, logs=[1, 2])
    for item in watch(request, timeout=120):
        say("item", as_dict(item))


if __name__ == "__main__":
    sys.exit(main())
