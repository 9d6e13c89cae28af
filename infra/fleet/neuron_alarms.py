"""The alarms of a cell on its Neuron devices and their runtime, by the metrics of neuron-monitor.

They have not run on hardware.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.fleet.alarm_kinds import AT_LEAST, MetricAlarm, Reading, Severity

# Forwards fail occasionally; one in a thousand is significant.
RUNTIME_ERROR_PERCENT, RUNTIME_ERRORS = 0.1, 5


def neuron() -> Iterator[MetricAlarm]:
    """Yield the alarms of hosts with Neuron devices."""

    def of(metric: str, dimension: str, value: str) -> Reading:
        return Reading(metric, ("Fleet", "Cell", dimension), ((dimension, value),))

    def error(kind: str) -> Reading:
        return of("execution_errors_total", "error_type", kind)

    def status(kind: str) -> Reading:
        return of("execution_status_total", "status_type", kind)

    yield MetricAlarm(
        key="neuron-hardware",
        meaning="A Neuron device lost data: an uncorrected memory error, or one that the runtime blames on hardware.",
        readings={
            "memory": of("hardware_ecc_events_total", "event_type", "mem_ecc_uncorrected"),
            "sram": of("hardware_ecc_events_total", "event_type", "sram_ecc_uncorrected"),
            "hardware": error("hardware"),
        },
        expression="memory + sram + hardware",
        line=1,
        unit="errors",
        evaluation=(300, 1, 1),
        severity=Severity.TICKET,
        comparison=AT_LEAST,
    )
    failed = {kind: error(kind) for kind in ("generic", "numerical", "model", "runtime")}
    failed |= {kind: status(kind) for kind in ("timed_out", "failed_to_queue")}
    bad = " + ".join(failed)
    yield MetricAlarm(
        key="neuron-runtime",
        meaning="Forward passes fail in the Neuron Runtime: errors, NaNs, timeouts, or a full queue.",
        readings={**failed, "completed": status("completed")},
        expression=f"IF({bad} >= {RUNTIME_ERRORS}, 100 * ({bad}) / IF({bad} == 0, 1, {bad} + completed), 0)",
        line=RUNTIME_ERROR_PERCENT,
        unit="% of forward passes",
        evaluation=(300, 2, 3),
        severity=Severity.TICKET,
    )
