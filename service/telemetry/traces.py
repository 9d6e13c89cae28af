"""OpenTelemetry traces of requests, sent only when a collector's address is set.

A span is made after the fact from the times that were measured anyway, so a request pays for its trace once it has been
answered. Spans carry ids, counts and times, but no shopper's text.
"""

import time
from collections.abc import Mapping

_NANOSECONDS = 1_000_000_000
_EXPORT_SECONDS = 5
Attributes = Mapping[str, str | int | float | bool]


class Tracer:
    """Sends spans in batches from a thread of the SDK; a collector that is down costs no request anything."""

    def __init__(self, endpoint: str) -> None:
        """Take a collector's address ("http://host:4318"), to which spans go over HTTP."""
        # Imported here, so that no endpoint costs neither time nor memory.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces", timeout=_EXPORT_SECONDS)
        self._provider = TracerProvider(resource=Resource.create({"service.name": "peakplan"}), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("service.api")

    def record(
        self, name: str, seconds: float, attributes: Attributes, parts: Mapping[str, float], headers: Mapping[str, str]
    ) -> None:
        """Record a request that ended just now: its name, its duration, and its parts (seconds, one after another).

        `headers` may hold the caller's W3C `traceparent`.
        """
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        end = time.time_ns()
        start = end - int(seconds * _NANOSECONDS)
        parent = TraceContextTextMapPropagator().extract(dict(headers))
        span = self._tracer.start_span(
            name, context=parent, kind=trace.SpanKind.SERVER, attributes=dict(attributes), start_time=start
        )
        inside = trace.set_span_in_context(span)
        for part, duration in parts.items():
            part_end = start + int(duration * _NANOSECONDS)
            self._tracer.start_span(part, context=inside, start_time=start).end(part_end)
            start = part_end
        span.end(end)

    def close(self) -> None:
        """Send the remaining spans, for a few seconds at most."""
        self._provider.force_flush(_EXPORT_SECONDS * 1000)
        self._provider.shutdown()
