"""`make mutants`: change one operation of the code at a time, at random, and list the changes that no test notices.

A few lines of our own: mutmut and cosmic-ray start Python and PyTorch anew for each mutant. What survives changes
nothing, which unchanged.jsonl says and why, or it wants a test.
"""

import argparse
import datetime
import json
import math
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.mutants.areas import AREAS, REPOSITORY, Area
from tests.mutants.operations import Mutant, mutants
from tests.mutants.warm import IMPORTED, Baseline, Outcome, Workshop

NOTICED, GONE = "Noticed since: it has a test now.", "The code has changed since."
UNCHANGED = Path(__file__).with_name("unchanged.jsonl")
_BASELINE_SECONDS = 1500
# A mutant that hangs is noticed after these, or five times what its tests take; one that loops once it has used as much
# of the processor, which a busy machine does not hasten.
_LEAST_SECONDS, _LEAST_OF_PROCESSOR = 60, 10
_ATTEMPTS = 3
_HYPOTHESIS = ("--hypothesis-seed=0",)  # the same examples for every mutant


def sample(area: str, seed: int, size: int, root: Path = REPOSITORY) -> list[Mutant]:
    """Return mutants of an area drawn at random, each as likely as any other, the same for the same seed and code."""
    every: list[Mutant] = []
    for file in AREAS[area].files():
        every += mutants(file, (root / file).read_text(encoding="utf-8"))
    return random.Random(f"{seed} {area}").sample(every, min(size, len(every)))


def judging(mutant: Mutant, baseline: Baseline) -> list[str]:
    """Return the tests to ask: those of the file that mirrors what changed first, then the quickest.

    They are those that enter what changed; all, where it is computed as modules are imported or no test enters it.
    """
    names = baseline.entered.get((mutant.file, mutant.starts), set()) - {IMPORTED}
    if not names or not mutant.starts or IMPORTED in baseline.entered[mutant.file, mutant.starts]:
        names = set(baseline.seconds)
    mirror = f"/test_{Path(mutant.file).stem}.py::"
    return sorted(names, key=lambda name: (mirror not in name, baseline.seconds[name]))


def survives(mutant: Mutant, workshop: Workshop, baseline: Baseline) -> bool | None:
    """Tell whether the tests that `judging` names pass with the change; None where the machine was too busy to tell.

    Tests that hang or fail because others keep the processor notice nothing. So the one that failed has to fail once
    more by itself, and to pass right after with nothing changed. What hides who enters a function (a fixture that
    tests share, a cache, another process) makes survivors, never the contrary.
    """
    judges = judging(mutant, baseline)
    for _ in range(_ATTEMPTS):
        with workshop.changed(mutant.file, mutant.source):
            if _outcome(workshop, baseline, judges) is Outcome.PASSED:
                return True
            if not (suspect := workshop.last_begun):
                return False  # it cannot even be imported
            again = _outcome(workshop, baseline, [suspect])
        if again is not Outcome.PASSED and _outcome(workshop, baseline, [suspect]) is Outcome.PASSED:
            return False
    return None


def _outcome(workshop: Workshop, baseline: Baseline, names: Sequence[str]) -> Outcome:
    plain = {name.partition("[")[0] for name in names}
    seconds, processor = (sum(times[name] for name in plain) for times in (baseline.seconds, baseline.processor))
    limits = _LEAST_SECONDS + 5 * seconds, _LEAST_OF_PROCESSOR + 3 * processor
    return workshop.run(["-x", *_HYPOTHESIS, *names], limits[0], processor=limits[1])


def _arguments(area: Area) -> list[str]:
    return [*_HYPOTHESIS, "-m", "not slow", *(["-k", f"not {area.left_out}"] if area.left_out else []), *area.tests]


def reasons() -> dict[tuple[str, str, str, str], str]:
    """Return why the mutants of unchanged.jsonl change nothing."""
    rows = [json.loads(line) for line in UNCHANGED.read_text(encoding="utf-8").splitlines() if line]
    return {_key(row): row["why"] for row in rows}


def _key(told: dict[str, str]) -> tuple[str, str, str, str]:
    return told["file"], told["function"], told["before"], told["after"]


def judge(name: str, seed: int, size: int, seconds: float = math.inf) -> dict[str, Any]:
    """Try a sample of an area's mutants and return how many were noticed, and the others.

    After so many seconds no more are tried: they come in the order in which they were drawn, so a part is a sample too.
    """

    def in_time(drawn: Sequence[Mutant]) -> Iterator[Mutant]:
        for mutant in drawn:
            if time.monotonic() >= end:
                return
            yield mutant

    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="peakplan-mutants-") as folder:
        workshop, baseline = _prepared(name, Path(folder))
        judged = list(_judged(in_time(sample(name, seed, size, workshop.root)), workshop, baseline))
    survivors = [_told(mutant) for mutant, alive in judged if alive]
    undecided = sum(alive is None for _, alive in judged)
    tried = len(judged) - undecided
    if not tried:
        sys.exit(f"{name}: {seconds:g} s were over before a mutant could be judged: give it longer")
    noticed = tried - len(survivors)
    print(
        f"{name}: {noticed} of {tried} noticed ({noticed / tried:.2f}), {undecided} undecided, seed {seed}", flush=True
    )
    day = datetime.date.today().isoformat()
    row = {"date": day, "seed": seed, "tried": tried, "noticed": noticed, "survivors": survivors}
    return row | ({"undecided": undecided} if undecided else {})


def judge_again(name: str, row: dict[str, Any], tests: Sequence[str] = ()) -> dict[str, Any]:
    """Return an area's row with what is known of its survivors by now; its share stays that of the first sight.

    What some `tests` of the area notice the area notices.
    """
    with tempfile.TemporaryDirectory(prefix="peakplan-mutants-") as folder:
        workshop, baseline = _prepared(name, Path(folder), tests)
        every = {mutant.key: mutant for mutant in sample(name, 0, sys.maxsize, workshop.root)}
        keys = [_key(told) for told in row["survivors"]]
        tried = [every[key] for key in keys if key in every]
        alive = {
            mutant.key: _told(mutant) for mutant, alive in _judged(tried, workshop, baseline) if alive is not False
        }
    survivors = [
        alive.get(key, {**told, "since": NOTICED if key in every else GONE})
        for key, told in zip(keys, row["survivors"], strict=True)
    ]
    return {**row, "survivors": survivors}


def _prepared(name: str, folder: Path, tests: Sequence[str] = ()) -> tuple[Workshop, Baseline]:
    """Return where an area's mutants are tried, by its tests or some. Exits where they fail with nothing changed."""
    workshop, area = Workshop(folder), AREAS[name]
    asked = replace(area, tests=tuple(tests) or area.tests)
    baseline = workshop.baseline(_arguments(asked), area.files(), _BASELINE_SECONDS)
    if not baseline.passed:
        sys.exit(f"{name}: its tests fail with nothing changed:\n{workshop.output.read_text('utf-8')[-3000:]}")
    return workshop, baseline


def _judged(tried: Iterable[Mutant], workshop: Workshop, baseline: Baseline) -> Iterator[tuple[Mutant, bool | None]]:
    """Yield each mutant and whether it survives; print those that do, and why they change nothing where it is known."""
    known, counts = reasons(), Counter[bool | None]()
    for mutant in tried:
        alive = survives(mutant, workshop, baseline)
        counts[alive] += 1
        if alive is not False:
            words = known.get(mutant.key, "") if alive else "undecided: the machine was too busy"
            print(f"{mutant.file}:{mutant.line}: {json.dumps(_told(mutant))} {words}", flush=True)
        if counts.total() % 10 == 0:
            print(f"{counts[False]} of {counts[False] + counts[True]} noticed so far", flush=True)
        yield mutant, alive


def _told(mutant: Mutant) -> dict[str, str]:
    return dict(zip(("file", "function", "before", "after"), mutant.key, strict=True))


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the copy goes then, too
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", default=list(AREAS), help=f"of {', '.join(AREAS)}")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="draws the sample; one at random")
    parser.add_argument("--sample", type=int, default=40, help="mutants an area")
    parser.add_argument("--seconds", type=float, default=math.inf, help="an area; then the rest of its sample is left")
    parser.add_argument("--output", type=Path, help="the figure in which the areas' rows are replaced")
    parser.add_argument("--again", action="store_true", help="draw nothing: try the survivors of that figure again")
    parser.add_argument("--by", nargs="+", default=(), metavar="TEST", help="with --again: by these files alone")
    given = parser.parse_args()
    for name in given.areas:
        row = (
            judge_again(name, _figure(given.output)[name], given.by)
            if given.again
            else judge(name, given.seed, given.sample, given.seconds)
        )
        if given.output:  # as it is by now: another run may have written its areas meanwhile
            figure = _figure(given.output) | {name: row}
            given.output.write_text(json.dumps(dict(sorted(figure.items())), indent=1) + "\n", encoding="utf-8")


def _figure(path: Path) -> dict[str, Any]:
    figure: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return figure


if __name__ == "__main__":
    main()
