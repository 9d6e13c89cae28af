"""Alarms on the Neuron devices and their runtime, from the metrics of neuron-monitor. Not run on hardware."""

from __future__ import annotations

from infra.fleet.alarm_kinds import MetricAlarm, Reading, Severity

# Forwards fail now and then; a part in a thousand is no accident.
RUNTIME_ERROR_PERCENT, RUNTIME_ERRORS = 0.1, 5


def neuron_hardware() -> MetricAlarm:
    def ecc(event: str) -> Reading:
        return Reading("hardware_ecc_events_total", ("Fleet", "Cell", "event_type"), (("event_type", event),))

    return MetricAlarm(
        key="neuron-hardware",
        meaning="A Neuron device lost data: an uncorrected memory error, or one that the runtime puts on hardware.",
        readings={
            "memory": ecc("mem_ecc_uncorrected"),
            "sram": ecc("sram_ecc_uncorrected"),
            "hardware": _execution_error("hardware"),
        },
        expression="memory + sram + hardware",
        line=1,
        unit="errors",
        period_seconds=300,
        periods=1,
        breaching=1,
        severity=Severity.TICKET,
        runbook="neuron-hardware",
        comparison="GreaterThanOrEqualToThreshold",
    )


def _execution_error(kind: str) -> Reading:
    return Reading("execution_errors_total", ("Fleet", "Cell", "error_type"), (("error_type", kind),))


def _execution_status(kind: str) -> Reading:
    return Reading("execution_status_total", ("Fleet", "Cell", "status_type"), (("status_type", kind),))


def neuron_runtime() -> MetricAlarm:
    errors = {kind: _execution_error(kind) for kind in ("generic", "numerical", "model", "runtime")}
    lost = {kind: _execution_status(kind) for kind in ("timed_out", "failed_to_queue")}
    bad = " + ".join([*errors, *lost])
    return MetricAlarm(
        key="neuron-runtime",
        meaning="Forwards fail in the Neuron Runtime: errors, NaNs, timeouts, or a full queue.",
        readings={**errors, **lost, "completed": _execution_status("completed")},
        expression=f"IF({bad} >= {RUNTIME_ERRORS}, 100 * ({bad}) / IF({bad} == 0, 1, {bad} + completed), 0)",
        line=RUNTIME_ERROR_PERCENT,
        unit="% of forwards",
        period_seconds=300,
        periods=3,
        breaching=2,
        severity=Severity.TICKET,
        runbook="neuron-runtime",
    )
