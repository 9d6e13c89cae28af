"""The plot of docs/figures/decoding.png: how long each strategy's plans take."""

from pathlib import Path

import matplotlib
from matplotlib import pyplot

from rehearsal.bench.series import Series

_COLOURS = {
    "hugging face generate": "#9aa5b1",
    "greedy": "#7b8794",
    "greedy with fast-forward": "#3e7cb1",
    "medusa": "#d9480f",
}


def plot_decoding(series: dict[str, Series], machine: str, path: Path) -> None:
    """Plot the cumulative share of questions planned within a time; the 300 ms limit is marked."""
    matplotlib.use("Agg")
    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=120, layout="constrained")
    for name, one in series.items():
        times = sorted(one.milliseconds)
        shares = [(index + 1) / len(times) for index in range(len(times))]
        axes.step(times, shares, where="post", label=name, color=_COLOURS.get(name), linewidth=2)
    axes.axvline(300, color="#c92a2a", linestyle=":", linewidth=1)
    axes.annotate("300 ms", (300, 0.55), xytext=(4, 0), textcoords="offset points", color="#c92a2a")
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds a plan (log scale), one replica, one request at a time")
    axes.set_ylabel("share of questions planned")
    axes.set_title(f"A plan's time by decoding strategy, same weights, same questions, one run\n{machine}")
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right")
    figure.savefig(path)
    pyplot.close(figure)
