"""Quality by the precision of the model's numbers: `peakplan bench precisions` writes docs/figures/precision.json.

A processor decodes in int8, a Neuron device in bfloat16, and the adapter was trained in float32. All three plan the
same sample of the questions of `make eval`; float32 takes minutes for it. The rounding is torch's on this machine, so
for a Neuron device the column of bfloat16 is an estimate.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from rehearsal.bench.machine import describe_machine
from rehearsal.bench.quality import Asked, asked_questions, model_plans
from service.planner.plan import Plan
from service.settings import Settings
from service.settings.choices import Precision

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "precision.json"
PRECISIONS: tuple[Precision, ...] = ("int8", "bfloat16", "float32")
REFERENCE: Precision = "float32"
SAMPLE = 40  # questions an origin
SCORES = ("intent", "out_of_scope_recall", "shopping_out_of_scope", "price_exact", "corrected", "valid_plans")


async def plans_by_precision(asked: Asked, model_dir: Path) -> dict[str, list[Plan | None]]:
    """Return the plans of all questions in each precision, one after the other."""
    questions = asked.questions()
    return {
        dtype: (await model_plans(Settings(model_dir=model_dir, dtype=dtype), questions))[1] for dtype in PRECISIONS
    }


def compared(asked: Asked, plans: dict[str, list[Plan | None]]) -> dict[str, Any]:
    """Return the scores of each precision, and the share of its plans that are those of the reference."""
    found: dict[str, Any] = {}
    for dtype, given in plans.items():
        same = [plan == other for plan, other in zip(given, plans[REFERENCE], strict=True)]
        scores = asked.scores(given)
        found[dtype] = {
            "span_f1": scores["span_f1"]["queryner"],
            **{name: scores[name] for name in SCORES},
            **{name: scores[name]["passed"] for name in asked.cases},
            "same_as_reference": round(sum(same) / len(same), 4),
        }
    return found


def main() -> None:
    """Write the figure, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the dev rows (../shared/data)")
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="questions an origin at most")
    parser.add_argument("--output", type=Path, default=FIGURE)
    options = parser.parse_args()
    asked = asked_questions(options.data, sample=options.sample)
    found = compared(asked, asyncio.run(plans_by_precision(asked, options.model)))
    figure = {
        "command": "peakplan bench precisions",
        "machine": describe_machine(),
        "questions": len(asked.questions()),
        "reference": REFERENCE,
        "precisions": found,
    }
    options.output.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
