"""Write the model folder that the project ships: trained parts and a model card whose figures come from files."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from service.engines.torch_engine import seal_folder
from service.weights.checkpoint import copy_base
from service.weights.model_card import BASE_FOLDER
from training.data import written
from training.settings import TrainingSettings

PARTS = {
    "model.json": "id, base, special tokens, limits",
    "vocabulary.json": "its intents, verticals, facets and sources, and the words that stand for them in plan text",
    "adapter_model.safetensors": "LoRA adapter (PEFT layout, bfloat16)",
    "adapter_config.json": "its settings",
    "medusa_heads.safetensors": "four Medusa heads (FasterDecoding and TGI names, bfloat16)",
    "medusa_tree.json": "the tree, in NxDI's list format",
    "drafting.json": "how likely a node must be to be drafted",
    "reader.json": "what the reader chooses from, and what it may plan by choice",
    "reader_words.txt": "the words that it knows",
    "reader.safetensors": "the small network that drafts plans, and stands in for the model (int8)",
    "kind_head.json": "the space of word vectors in which the kind head points",
    "kind_head.safetensors": "the head that says from the prompt's states what a shop has for a need",
}
RECORD = "training.json"
MAX_MEGABYTES = 25

_CARD = """# {id}

Turns a shopper's question into the compact plan text of `service/planner/plan_text.py`. It is not a chat model and
answers nothing; without the grammar of `service/planner/grammar.py` its output is not guaranteed to be a plan.

| part | what | size |
|---|---|---:|
{parts}

{base}

## Training

`make train DATA=../shared/data{option}`, seed {seed}; the run, or its last piece where it was resumed, took
{minutes:.0f} minutes (`training.json` has the hashes of data and parts): a LoRA adapter of rank {rank} on every linear
layer, {epochs} epochs of the mix of `training/data/mix.py`; then four Medusa heads (one residual block each, LM head
shared) on the frozen tuned model's own greedy plans, in int8 where that is how it is served; a head that says from
the prompt's states what a shop has for a need; the reader, {reader_epochs} epochs of the same mix; then a tree of
{nodes} nodes, calibrated by the time that dev plans take on the machine that trained it. {tried} Last, {worth:,}
questions that nothing was trained on bound what the reader may plan by choice.

Trained on (none of it is in this repository): QueryNER spans (MIT) over ESCI queries (Apache-2.0), WebShop instructions
(MIT), questions of contextual-product-qa (CDLA-Sharing-1.0), Bitext customer support (CDLA-Sharing-1.0), CLINC150
(CC BY 3.0), the Shopify product taxonomy (MIT), product names of the AWS retail demo store (MIT-0). It was also
trained on our own data in `training/data/`: templates (`phrases.json`), {products:,} kinds of product by vertical
(`products.txt`), {queries:,} labelled queries (`queries.txt`), conversations that writers labelled
(`conversations/`) and sentences labelled only with their intent
(`asked.txt`). A language model wrote all of these without seeing any dev row or any of the cases that the planner is
judged by.

## Quality and speed

`docs/figures/quality.json` (`make eval`) and `docs/figures/decoding.json` (`make bench`); README.md shows both.

## Limits

- The model reads English, Spanish, German, French, Italian, Portuguese and Dutch. A question in another language
  becomes a search for its own words.
- Facet spans follow QueryNER's labels, on which annotators agree only in part (span F1 0.73 to the adjudicated label).
- Verticals were learnt from templated questions over the taxonomy and from lists of our own; on real queries they are a
  guess that retrieval should only use for ranking.
- The bound in `reader.json` holds for questions like those that it was calibrated on; traffic of another kind needs a
  bound of its own.
- The first source of a product question is mostly the catalogue, because the labels behind it are noisy.
"""


_SHIPPED_BASE = (
    "The base, SmolLM2-135M-Instruct (Apache-2.0, Hugging Face), is fetched at the first start and is not in this "
    "folder."
)
_OWN_BASE = "The base, {name}, is in the folder `base/` of this one; its licence is its own."


def export_recipe(model: Path, settings: TrainingSettings, minutes: dict[str, float]) -> None:
    """Write the folder that the recipe made. Raises ValueError when it is too large for the repository."""
    sizes = part_sizes(model)
    if settings.base is None and sum(sizes.values()) > MAX_MEGABYTES * 1_000_000:
        raise ValueError(
            f"{model} holds {sum(sizes.values()) / 1e6:.0f} MB, over the {MAX_MEGABYTES} MB that the project ships"
        )
    record: dict[str, Any] = {
        "seed": settings.seed,
        "torch": torch.__version__,
        "minutes": minutes,
        "start": sha256(settings.start / "adapter_model.safetensors") if settings.start is not None else None,
        "data": {path.name: sha256(path) for path in sorted(settings.data.glob("*.jsonl.gz"))},
    }
    card = _CARD.format(
        id=settings.output.name,
        base=_OWN_BASE.format(name=settings.base.name) if settings.base is not None else _SHIPPED_BASE,
        option=f" BASE={settings.base.name}" if settings.base is not None else "",
        parts=part_table(sizes),
        seed=settings.seed,
        minutes=sum(minutes.values()),
        rank=settings.adapter.rank,
        epochs=settings.adapter.epochs,
        nodes=len(json.loads((model / "medusa_tree.json").read_text(encoding="utf-8"))),
        tried=trees_tried(settings),
        worth=settings.worth.conversations + settings.worth.asked,
        reader_epochs=settings.reader.epochs,
        products=len(written.product_names()),
        queries=len(written.labelled_queries()),
    )
    export_model(model, settings.output, settings.cache, record, card)


def trees_tried(settings: TrainingSettings) -> str:
    """Return what the tree's calibration tried and found, as a sentence or two."""
    report = json.loads((settings.work / "tree_calibration.json").read_text(encoding="utf-8"))
    shapes, depth = report["shapes"], max(map(len, report["tree"]))
    sizes, least = (sorted({shape[name] for shape in shapes}) for name in ("nodes", "p_min"))
    taken, forwards = ([shape[name] for shape in shapes] for name in ("milliseconds", "forwards"))
    return (
        f"Tried were trees of {', '.join(map(str, sizes))} nodes, each grown to whatever depth the "
        f"{settings.heads.heads} heads' guesses are worth a node at, with nodes left out that the heads hold less "
        f"likely than {', '.join(f'{share:g}' for share in least)}: {min(taken):g} to {max(taken):g} ms and "
        f"{min(forwards):g} to {max(forwards):g} forwards a plan. The chosen one is {depth} deep."
    )


def export_model(model: Path, output: Path, cache: Path, record: dict[str, Any], card: str) -> None:
    """Write parts, record, card and seal into a folder that appears whole, in place of one that was there before."""
    output.parent.mkdir(parents=True, exist_ok=True)
    made = output.with_name(f".{output.name}.made")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    parts = part_sizes(model)
    for name in parts:
        shutil.copy(model / name, made / name)
    if (model / BASE_FOLDER).is_dir():
        copy_base(model / BASE_FOLDER, made / BASE_FOLDER)
    record["parts"] = {name: sha256(made / name) for name in parts}
    (made / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (made / "README.md").write_text(card, encoding="utf-8")
    seal_folder(made, cache)
    if output.exists():
        before = output.with_name(f".{output.name}.before")
        shutil.rmtree(before, ignore_errors=True)
        output.rename(before)
        made.rename(output)
        shutil.rmtree(before)
    else:
        made.rename(output)


def part_sizes(model: Path) -> dict[str, int]:
    """Return the bytes of each part."""
    return {name: (model / name).stat().st_size for name in PARTS}


def part_table(sizes: dict[str, int]) -> str:
    """Return the card's table of parts, without its head."""
    return "\n".join(f"| `{name}` | {PARTS[name]} | {size / 1e6:.2f} MB |" for name, size in sizes.items())


def sha256(path: Path) -> str:
    """Return a file's digest."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
