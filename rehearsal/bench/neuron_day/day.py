"""What is measured in a day: which graphs, of which model, where artifacts and results are kept. Knows no torch."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from service.engines.version import folder_version

# Rows of a step (0: the tree's own) and plans decoded together; both cost memory and time that only a device tells.
ROWS = (0, 32, 48)
BATCHES = (1, 4, 8)
# In the order in which they are tried: no chain is compiled where a graph of the first kind plans.
KINDS = ("tree", "chain")


@dataclass(frozen=True)
class Graph:
    """One compiled graph: rows of a step (0: as many as the tree has), sequences, and the NeuronCores that it spans.

    `kind` is what a step reads, and `layout` whether the compiler chooses the weights' layout for it.
    """

    rows: int = 0
    batch: int = 1
    cores: int = 1
    kind: str = "tree"
    layout: bool = False

    @property
    def name(self) -> str:
        """Its name in figures and files, such as 48-rows-batch-1-core-1."""
        cores = f"{'core' if self.cores == 1 else 'cores'}-{self.cores}"
        kind = ("" if self.kind == "tree" else f"-{self.kind}") + ("-layout" if self.layout else "")
        return f"{self.rows or 'tree'}-rows-batch-{self.batch}-{cores}{kind}"


@dataclass(frozen=True)
class Day:
    """A day over one model on one chip; `folder` keeps what was compiled and every part's result."""

    model_dir: Path
    cache_dir: Path
    folder: Path
    chip: str
    questions: int
    steps: int = 200
    graphs: tuple[Graph, ...] = ()

    def of_kind(self, kind: str) -> "Day":
        """Return the same day over graphs of another kind."""
        return replace(self, graphs=tuple(replace(graph, kind=kind) for graph in self.graphs))

    def compiled(self, graph: Graph) -> Path:
        """Return where a graph's artifacts are; those of another model are elsewhere."""
        return self.folder / f"{self.chip}-{graph.name}-{folder_version(self.model_dir)}"

    def write(self) -> Path:
        """Write the day for its parts' processes and return the file."""
        file = self.folder / "day.json"
        file.write_text(json.dumps(asdict(self), default=str), encoding="utf-8")
        return file

    @classmethod
    def read(cls, file: Path) -> "Day":
        """Read what `write` wrote."""
        content = json.loads(file.read_text(encoding="utf-8"))
        content |= {name: Path(content[name]) for name in ("model_dir", "cache_dir", "folder")}
        return cls(**content | {"graphs": tuple(Graph(**graph) for graph in content["graphs"])})


def graphs(
    rows: tuple[int, ...] = ROWS,
    batches: tuple[int, ...] = BATCHES,
    cores: tuple[int, ...] = (1,),
    *,
    layout: bool = False,
) -> tuple[Graph, ...]:
    """Return the graphs to compare: every number of rows alone, the tree's own in batches, each over so many cores."""
    alone = [Graph(count, 1, span, layout=layout) for span in cores for count in rows]
    together = [Graph(rows[0], batch, span, layout=layout) for span in cores for batch in batches if batch > 1]
    return tuple(dict.fromkeys(alone + together))


@dataclass(frozen=True)
class Task:
    """One part, of one graph where it has one, in a process of its own that may take so many seconds."""

    part: str
    graph: Graph | None = None
    limit: float = 1800.0

    @property
    def name(self) -> str:
        """Its name, such as steps:tree-rows-batch-1-core-1."""
        return f"{self.part}:{self.graph.name}" if self.graph else self.part


def tasks(day: Day) -> Iterator[Task]:
    """Yield what runs on the device's Python, in order: whatever compiles is compared before it is timed."""
    yield Task("machine", limit=120)
    for part in ("compile", "order", "steps", "plans"):
        for graph in day.graphs[:1] if part == "order" else day.graphs:
            yield Task(part, graph, 7200.0 if part == "compile" else 1800.0)


def result_file(day: Day, name: str) -> Path:
    """Return the file of a part's result."""
    return day.folder / "results" / f"{day.chip}-{name.replace(':', '-')}.json"


def inputs(day: Day) -> dict[str, Any]:
    """Return what a result was measured with; one with other inputs is measured again."""
    return {"model": folder_version(day.model_dir), "chip": day.chip, "questions": day.questions, "steps": day.steps}
