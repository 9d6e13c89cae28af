"""Retention: an earlier adapter's answers to some kinds of questions are kept while others are learnt.

"Learning without forgetting" (Li & Hoiem, 2016, arXiv 1606.09282): on the retained kinds, part of the target is the
distribution of the earlier model. Labels alone would be memorised in a further pass, and the mean of several runs, from
which spans benefit much, would become a single run again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from training.batches import Batch, SoftTargets
from training.data.examples import IGNORED, EncodedExample


@dataclass(frozen=True, slots=True)
class Retention:
    """The origins for which the teacher's answers are kept, and their share of the target."""

    origins: frozenset[str]
    weight: float = 0.7

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise ValueError(f"the teacher's weight is {self.weight}; give one above 0 and up to 1")


class Teacher:
    """The frozen base with an earlier adapter merged into it."""

    def __init__(self, retention: Retention, base: Path, adapter: Path | None, device: torch.device) -> None:
        if adapter is None or not (adapter / "adapter_config.json").is_file():
            raise ValueError(f"{adapter} holds no adapter whose answers could be kept; train the one before first")
        model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
        merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
        self._model: Any = merged.to(device).eval()
        self._retention = retention
        print(f"keeping what {adapter.name} does on {', '.join(sorted(retention.origins))}", flush=True)

    def soften(self, batch: Batch, examples: Sequence[EncodedExample]) -> SoftTargets | None:
        """Return soft targets where a row of a retained origin supervises a single token; None where there is none."""
        kept = torch.tensor(
            [example.origin in self._retention.origins for example in examples], device=batch.tokens.device
        )
        supervised = batch.targets != IGNORED
        taught = supervised & (batch.targets >= 0) & kept[:, None]
        if not taught.any():
            return None
        with torch.no_grad(), torch.autocast(batch.tokens.device.type, dtype=torch.bfloat16):
            hidden = self._model.model(
                input_ids=batch.tokens[kept], attention_mask=batch.mask[kept].long(), use_cache=False
            )
            logits = self._model.lm_head(hidden.last_hidden_state[taught[kept]])
        return SoftTargets(taught[supervised], logits.float().softmax(-1), self._retention.weight)
