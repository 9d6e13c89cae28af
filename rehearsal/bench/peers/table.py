"""Renders docs/figures/peers.json for the README: two tables per machine, forwards and whole plans."""

from collections.abc import Iterator
from typing import Any

_OURS, _MEDUSA = "Peakplan", "Medusa"
_COMPARED = ("4", "16")  # rows whose ratios are spelt out


def render_peers(figure: dict[str, Any]) -> str:
    """Return the tables of every machine and kernel that `peakplan bench peers` ran on."""
    return "\n\n".join(f"**{name}**\n\n{_machine(one)}" for name, one in figure["machines"].items())


def _machine(figure: dict[str, Any]) -> str:
    engines: dict[str, dict[str, Any]] = figure["threads"]["1"]
    limits = figure["limits"]
    where = f"{figure['machine']['cores']} cores of {figure['machine']['processor']}, kernel {figure['kernel']}"
    questions = f"{figure['questions']['count']} questions ({figure['questions']['from']})"
    speeds = (
        f"{limits['gigabytes_per_second']} GB/s and {limits['gigamultiplies_per_second']} billion multiplies a second"
    )
    return "\n".join(
        [
            *_forwards(engines, limits["forward_ms"]),
            "",
            *_plans(engines),
            "",
            *_missing(engines),
            *_two_threads(figure["threads"]),
            f"<sub>`{figure['command']}`: {questions}, {where}; the limit is {speeds}, measured by "
            f"{limits['measured_with']}.{_held(figure, engines)}</sub>",
        ]
    )


def _forwards(engines: dict[str, dict[str, Any]], limit: dict[str, float]) -> Iterator[str]:
    ours = engines[_OURS]["forward_ms"]
    ratios = " and ".join(_COMPARED)
    yield (
        f"| ms per forward, by rows | {' | '.join(limit)} | relative to ours, {ratios} rows | relative to the limit "
        "| same best token as ours | correlation of logits |"
    )
    yield "|---|" + "---:|" * (len(limit) + 4)
    yield f"| the machine's limit | {' | '.join(f'{each:g}' for each in limit.values())} | | | | |"
    for name, one in _sorted(engines):
        taken = one["forward_ms"]
        agreement = one.get("agreement")
        near = (
            "| " if agreement is None else f"{agreement['same_best_token']:.0%} | {agreement['logits_correlation']:.3f}"
        )
        of_ours = "" if name == _OURS else _ratios(taken, ours)
        cells = " | ".join(f"{each:g}" for each in taken.values())
        yield f"| {name} | {cells} | {of_ours} | {_ratios(taken, limit)} | {near} |"


def _ratios(taken: dict[str, float], base: dict[str, float]) -> str:
    return ", ".join(f"{taken[rows] / base[rows]:.1f}x" for rows in _COMPARED)


def _plans(engines: dict[str, dict[str, Any]]) -> Iterator[str]:
    best = engines[_OURS]["plans"][_MEDUSA]["p50_ms"]
    yield "| ms per plan | decoded with | p50 | p99 | forwards | Medusa speedup | same plans as ours |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    every = [(name, how, plan) for name, one in _sorted(engines) for how, plan in one["plans"].items()]
    for name, how, plan in sorted(every, key=lambda item: item[2]["p50_ms"]):
        faster = "" if (name, how) == (_OURS, _MEDUSA) else f"{plan['p50_ms'] / best:.1f}x"
        yield (
            f"| {name} | {how} | {plan['p50_ms']} | {plan['p99_ms']} | {plan['forwards']} | {faster} "
            f"| {plan['identical_to_ours']:.0%} |"
        )


def _sorted(engines: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return ours first, then the others from fast to slow, without those that failed."""
    whole = [(name, one) for name, one in engines.items() if "failed" not in one]
    return sorted(whole, key=lambda item: (item[0] != _OURS, item[1]["forward_ms"][_COMPARED[0]]))


def _missing(engines: dict[str, dict[str, Any]]) -> Iterator[str]:
    for name, one in engines.items():
        if "failed" in one:
            yield f"{name}: {one['failed']}."
            yield ""


def _two_threads(threads: dict[str, dict[str, dict[str, Any]]]) -> Iterator[str]:
    """Yield the fastest peer's gain from a second thread."""
    peers = [item for item in _sorted(threads.get("2", {})) if item[0] != _OURS]
    if not peers:
        return
    name, one = peers[0]
    forwards = " and ".join(f"{one['forward_ms'][rows]:g}" for rows in _COMPARED)
    how, plan = min(one["plans"].items(), key=lambda item: item[1]["p50_ms"])
    ours = threads["1"][_OURS]
    mine = " and ".join(f"{ours['forward_ms'][rows]:g}" for rows in _COMPARED)
    yield (
        f"On two threads the fastest peer, {name}, takes {forwards} ms for {' and '.join(_COMPARED)} rows and "
        f"{plan['p50_ms']} ms for a plan ({how}, p50); ours, on one thread, takes {mine} ms and "
        f"{ours['plans'][_MEDUSA]['p50_ms']} ms."
    )
    yield ""


def _held(figure: dict[str, Any], engines: dict[str, dict[str, Any]]) -> str:
    """Return, for a forced kernel, which peers were restricted to its instructions, and which were not."""
    if not figure["forced"]:
        return ""
    free = [name for name, one in engines.items() if one.get("instructions") == "what it detects"]
    if not free:
        return " All peers are restricted to the same instructions."
    return f" {', '.join(free)} cannot be restricted to the same instructions and may use all of this processor's."
