"""Write the model folder that the project ships: trained parts and a model card whose figures come from files."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from service.weights.seal import SEAL
from training.data import written
from training.settings import Stage

PARTS = {
    "model.json": "id, base, special tokens, limits",
    "adapter_model.safetensors": "LoRA adapter (PEFT layout, bfloat16)",
    "adapter_config.json": "its settings",
    "medusa_heads.safetensors": "four Medusa heads (FasterDecoding and TGI names, bfloat16)",
    "medusa_tree.json": "the tree, in NxDI's list format",
    "drafting.json": "how likely a node must be to be drafted",
    "prefill_head.json": "phrases with which plans begin, and how likely a guess must be to be drafted",
    "prefill_head.safetensors": "the head that guesses them from the prompt's words (bfloat16)",
    "early_exit.json": "for the strategy `draft`: how many of the first layers draft, and how far",
    "early_exit.safetensors": "the lens on the state that leaves them (bfloat16)",
}
MAX_MEGABYTES = 25

_CARD = """# qp-smollm2-135m

Turns a shopper's question into the compact plan text of `service/planner/plan_text.py`. It is not a chat model and
answers nothing; without the grammar of `service/planner/grammar.py` its output is not guaranteed to be a plan.

| part | what | size |
|---|---|---:|
{parts}

The base, SmolLM2-135M-Instruct (Apache-2.0, Hugging Face), is fetched at the first start and is not in this folder.

## Training

`make train DATA=../shared/data`, seed {seed}: a LoRA adapter on every linear layer, the mean of independent runs and
refined in further stages, cut to rank {rank}, over mixes of `training/data/mix.py` ({stages}; `training/settings.py`
has every number); then four Medusa heads (one residual block each, LM head shared) on the frozen tuned model's own
greedy plans, in int8 where that is how it is served; a head that guesses from the prompt's words how a plan begins; a
lens on the state after the first layers, so that these can draft; then a tree of {nodes} nodes and which guesses to
draft, calibrated by the time that dev plans take on the machine that trained it.

Trained on (none of it is in this repository): QueryNER spans (MIT) over ESCI queries (Apache-2.0), WebShop instructions
(MIT), questions of contextual-product-qa (CDLA-Sharing-1.0), Bitext customer support (CDLA-Sharing-1.0), CLINC150
(CC BY 3.0), the Shopify product taxonomy (MIT), product names of the AWS retail demo store (MIT-0). And on what is
ours, in `training/data/`: templates (`phrases.json`), {products:,} kinds of product by vertical (`products.txt`) and
{queries:,} labelled queries (`queries.txt`); a language model wrote both lists and saw no dev row.

## Quality and speed

`docs/figures/quality.json` (`make eval`) and `docs/figures/decoding.json` (`make bench`); README.md shows both.

## Limits

- English. Other languages give valid plans of little use.
- Facet spans follow QueryNER's labels, on which annotators agree only in part (span F1 0.73 to the adjudicated label).
- Verticals were learnt from templated questions over the taxonomy and from lists of our own; on real queries they are a
  guess that retrieval should use softly.
- The first source of a product question is mostly the catalogue: the labels behind it are noisy.
- Prices are plain numbers; currencies are not told apart.
"""


def export_model(model: Path, output: Path, *, seed: int, stages: Sequence[Stage]) -> None:
    """Copy the parts and write the card. Raises ValueError when the folder is too large for the repository."""
    output.mkdir(parents=True, exist_ok=True)
    for name in PARTS:
        # An exit that was not trained again may stay: with another adapter its guesses are worse, but no token changes.
        if (model / name).is_file() or not (name.startswith("early_exit") and (output / name).is_file()):
            shutil.copy(model / name, output / name)
    (output / SEAL).unlink(missing_ok=True)  # of what was there before
    sizes = {name: (output / name).stat().st_size for name in PARTS}
    if sum(sizes.values()) > MAX_MEGABYTES * 1_000_000:
        raise ValueError(
            f"{output} holds {sum(sizes.values()) / 1e6:.0f} MB, over the {MAX_MEGABYTES} MB that the project ships"
        )
    parts = "\n".join(f"| `{name}` | {what} | {sizes[name] / 1e6:.2f} MB |" for name, what in PARTS.items())
    nodes = len(json.loads((output / "medusa_tree.json").read_text(encoding="utf-8")))
    config = json.loads((output / "adapter_config.json").read_text(encoding="utf-8"))
    described = ", ".join(f"{stage.name}: {stage.adapter.epochs} epochs" for stage in stages)
    card = _CARD.format(
        parts=parts,
        seed=seed,
        rank=config["r"],
        stages=described,
        nodes=nodes,
        products=len(written.product_names()),
        queries=len(written.labelled_queries()),
    )
    (output / "README.md").write_text(card, encoding="utf-8")
