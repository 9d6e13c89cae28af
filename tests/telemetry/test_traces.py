"""Traces as a collector receives them: over HTTP, as protobuf."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from service.telemetry.traces import Tracer

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(HTTPServer):
    """A collector that keeps every span it receives."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Any] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
        self.server.spans += [s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_request_is_a_span_with_its_parts_under_the_callers_trace(collector: Collector) -> None:
    tracer = Tracer(collector.url)
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
    tracer.record("POST /plan", 0.2, {"peakplan.source": "model"}, {"queue": 0.05, "model": 0.1}, headers)
    tracer.close()
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {"POST /plan", "queue", "model"}
    request = spans["POST /plan"]
    assert request.trace_id.hex() == TRACE_ID
    assert request.parent_span_id.hex() == PARENT_ID
    assert request.end_time_unix_nano - request.start_time_unix_nano == 200_000_000
    assert spans["model"].parent_span_id == request.span_id
    assert spans["model"].start_time_unix_nano == spans["queue"].end_time_unix_nano
    assert {a.key: a.value.string_value for a in request.attributes} == {"peakplan.source": "model"}
