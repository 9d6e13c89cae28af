"""What a model writes for a question and does not doubt, in this process, and what the text follows from."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.planner.doubt import LEAST_PROBABILITY, without_doubts
from service.planner.prompt import PlanTask
from service.settings import Settings


def text_key(task: PlanTask) -> str:
    """Return a digest of all that a model sees of a question."""
    return hashlib.sha256(f"{task.prompt}\x1e{task.grammar}".encode()).hexdigest()[:20]


def generator(model_dir: Path, least: float = LEAST_PROBABILITY) -> Callable[[PlanTask], str]:
    """Return what writes a plan's text, without filters less probable than `least`.

    PyTorch and the model are loaded for the first question that needs them.
    """
    loaded: list[Any] = []

    def generate(task: PlanTask) -> str:
        if not loaded:
            from service.engines.torch.engine import load

            settings = Settings(model_dir=model_dir)
            loaded.append((load(settings.engine_config), settings.strategy))
        model, strategy = loaded[0]
        result = model.generate(task.request(strategy))
        return without_doubts(result.text, result.unsure_words, task.vocabulary, least)

    return generate
