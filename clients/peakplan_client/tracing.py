"""W3C trace context: a call carries on the trace that it is part of, or starts one."""

import re
import secrets

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def trace_headers(traceparent: str | None = None, tracestate: str | None = None) -> dict[str, str]:
    """Return the trace context to send: what was given, else OpenTelemetry's current span, else a new trace.

    A malformed `traceparent` starts a new trace, as the specification asks, and is no error.
    """
    if traceparent and _TRACEPARENT.fullmatch(traceparent):
        return {"traceparent": traceparent, **({"tracestate": tracestate} if tracestate else {})}
    return _current() or {"traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"}


def _current() -> dict[str, str]:
    try:
        from opentelemetry import propagate
    except ImportError:
        return {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {name: carrier[name] for name in ("traceparent", "tracestate") if name in carrier}
