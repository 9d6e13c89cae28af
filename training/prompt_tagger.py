"""Train the prompt tagger (`service/decoding/prompt_tags.py`): what of a prompt its plan copies, and after which words.

It learns from the plans that the tuned model wrote itself for the Medusa heads, and from the states of their prompts.
`python -m training.prompt_tagger` adds one to a finished model folder, or replaces it once its adapter has changed.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from service.decoding.prompt_tags import BEGINS, GOES_ON, Phrase, Place, PromptTagger, TaggerWeights
from service.weights.prompt_tagger import CARD, WEIGHTS
from service.weights.tokenizer_file import load_tokenizer
from training.data.examples import IGNORED
from training.part import part_parser, part_settings
from training.positions import Positions, collect
from training.settings import PromptTaggerSettings, TrainingSettings


class TooFewPlansError(ValueError):
    """Raised where nothing is frequent among the plans. A model without a tagger drafts by its heads alone."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A plan as phrases and what it copies: `spans` are (phrase, first and last token of the prompt)."""

    opening: Phrase
    spans: list[tuple[Phrase, int, int]]
    closing: Phrase


class TrainableTagger(nn.Module):
    """The weights of a tagger, as parameters."""

    def __init__(self, phrases: int, ends: int, hidden_size: int, settings: PromptTaggerSettings) -> None:
        super().__init__()
        features, width = settings.features, settings.width
        shapes: dict[str, tuple[int, ...]] = {
            "inner": (features, hidden_size),
            "mean": (features, features),
            "near": (features, features, width),
            "far": (features, features, width),
            "tags": (phrases + BEGINS, features),
            "ends": (ends, 3 * features),
        }
        for name, shape in shapes.items():
            bound = math.prod(shape[1:]) ** -0.5
            setattr(self, name, nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))
            if name != "mean":
                setattr(self, f"{name}_bias", nn.Parameter(torch.zeros(shape[0])))

    def weights(self) -> TaggerWeights:
        return TaggerWeights(**dict(self.named_parameters()))

    def state(self, scale: float) -> dict[str, Tensor]:
        """Return the tensors of `load_tagger_weights`, in bfloat16; states were divided by `scale`."""
        return {
            name: (value / scale if name == "inner" else value).detach().to(torch.bfloat16).contiguous().cpu()
            for name, value in self.named_parameters()
        }


@dataclass(frozen=True, slots=True)
class Tagged:
    """A prompt's states [T, H], its tags [T], and the indices of its plan's opening and closing."""

    states: Tensor
    tags: Tensor
    opening: int
    closing: int


def own_tokens(prompts: Sequence[list[int]], plans: Sequence[list[int]], seen: int) -> set[int]:
    """Return the tokens that plans say of their own: more often than not their prompts do not hold them."""
    said: Counter[int] = Counter()
    alone: Counter[int] = Counter()
    for prompt, plan in zip(prompts, plans, strict=True):
        said.update(set(plan))
        alone.update(set(plan) - set(prompt))
    return {token for token, count in alone.items() if count >= seen and 2 * count > said[token]}


def copied(prompt: list[int], plan: list[int], own: set[int]) -> Copied | None:
    """Take a plan apart; None where what it copies does not stand in the prompt in the same order."""
    spans: list[tuple[Phrase, int, int]] = []
    position = end = 0
    while position < len(plan):
        start = position
        while position < len(plan) and plan[position] in own:
            position += 1
        phrase, first = tuple(plan[start:position]), position
        while position < len(plan) and plan[position] not in own:
            position += 1
        value = plan[first:position]
        if not value:
            return Copied((), spans, phrase)
        places = range(max(1, end), len(prompt) - len(value) + 1)
        at = next((place for place in places if prompt[place : place + len(value)] == value), None)
        if at is None:
            return None
        end = at + len(value)
        spans.append((phrase, at, end - 1))
    return Copied((), spans, ())


def split_openings(plans: Sequence[Copied | None]) -> Iterator[Copied | None]:
    """Yield the plans with what comes before their first phrase apart: the phrase is one that others have later."""
    later = {phrase for plan in plans if plan for phrase, _, _ in plan.spans[1:]}
    ends = {plan.closing for plan in plans if plan and plan.spans}
    for plan in plans:
        if plan is None:
            yield None
            continue
        whole = plan.spans[0][0] if plan.spans else plan.closing
        known = later if plan.spans else ends
        cut = next((at for at in range(1, len(whole) + 1) if whole[at:] in known), len(whole))
        if plan.spans:
            (_, first, last), *others = plan.spans
            yield Copied(whole[:cut], [(whole[cut:], first, last), *others], plan.closing)
        else:
            yield Copied(whole[:cut], [], whole[cut:])


def choose(plans: Sequence[Copied | None], seen: int) -> tuple[list[Phrase], list[Phrase], list[Phrase]]:
    """Return phrases, openings and closings that so many plans have, the most frequent first."""
    phrases: Counter[Phrase] = Counter()
    openings: Counter[Phrase] = Counter()
    closings: Counter[Phrase] = Counter()
    for plan in filter(None, plans):
        phrases.update(phrase for phrase, _, _ in plan.spans)
        openings[plan.opening] += 1
        closings[plan.closing] += 1
    chosen = ([each for each, count in kind.most_common() if count >= seen] for kind in (phrases, openings, closings))
    found = tuple(chosen)
    if not all(found):
        raise TooFewPlansError("no phrase, opening or closing is frequent among the plans: there are too few of them")
    return found[0], found[1], found[2]


def fit_tagger(module: TrainableTagger, known: Sequence[Tagged], openings: int, chosen: PromptTaggerSettings) -> None:
    """Train in place, on states as the module reads them."""
    steps = chosen.epochs * math.ceil(len(known) / chosen.batch_size)
    optimizer = torch.optim.AdamW(module.parameters(), lr=chosen.learning_rate, weight_decay=chosen.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, chosen.learning_rate, total_steps=steps)
    for epoch in range(chosen.epochs):
        running = 0.0
        for rows in torch.split(torch.randperm(len(known)), chosen.batch_size):
            batch = [known[row] for row in rows.tolist()]
            states = nn.utils.rnn.pad_sequence([each.states.float() for each in batch], batch_first=True)
            targets = nn.utils.rnn.pad_sequence([each.tags for each in batch], batch_first=True, padding_value=IGNORED)
            lengths = torch.tensor([len(each.tags) for each in batch])
            mask = (torch.arange(states.shape[1])[None] < lengths[:, None]).float()
            tags, ends = module.weights().scores(functional.dropout(states, chosen.dropout), mask)
            loss = functional.cross_entropy(tags.flatten(0, 1), targets.flatten(), reduction="sum") / len(batch)
            opening, closing = ends[:, :openings], ends[:, openings:]
            loss = loss + functional.cross_entropy(opening, torch.tensor([each.opening for each in batch]))
            loss = loss + functional.cross_entropy(closing, torch.tensor([each.closing for each in batch]))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            running += loss.item() * len(batch)
        print(f"prompt tagger: epoch {epoch + 1}/{chosen.epochs} loss {running / len(known):.4f}", flush=True)


def drafted(tagger: PromptTagger, prompt: list[int], states: Tensor) -> list[int]:
    """Return the whole plan that a tagger drafts for a prompt."""
    tagged, tokens = tagger.read(prompt, states), list[int]()
    place: Place | None = Place()
    while place is not None and (following := tagged.next(place)) is not None:
        tokens.append(following[0])
        place = tagged.walk(place, tokens[-1:])
    return tokens


def foretold(drafts: Sequence[list[int]], plans: Sequence[list[int]]) -> tuple[float, float]:
    """Return how many plans are drafted whole, and the mean share of a plan before the first wrong token."""
    shares = []
    for draft, plan in zip(drafts, plans, strict=True):
        pairs = zip(draft, plan, strict=False)
        shares.append(
            next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(draft), len(plan)))
        )
    whole = sum(draft == plan for draft, plan in zip(drafts, plans, strict=True))
    return round(whole / len(plans), 4), round(
        sum(s / len(p) for s, p in zip(shares, plans, strict=True)) / len(plans), 4
    )


def train_prompt_tagger(positions: Positions, settings: TrainingSettings, model_dir: Path) -> tuple[float, float]:
    """Write prompt_tagger.json and prompt_tagger.safetensors; return `foretold` of a held-out twentieth.

    Raises TooFewPlansError before it writes anything.
    """
    chosen = settings.prompt_tagger
    torch.manual_seed(settings.seed)
    torch.set_num_threads(settings.processes)
    lengths = positions.prompt_lengths.tolist()
    prompts = [part.tolist() for part in torch.split(positions.prompts, lengths)]
    plans = [part.tolist() for part in torch.split(positions.tokens, positions.lengths.tolist())]
    states = torch.split(positions.prompt_hidden, lengths)
    own = own_tokens(prompts, plans, chosen.seen)
    taken = list(split_openings([copied(*pair, own) for pair in zip(prompts, plans, strict=True)]))
    phrases, openings, closings = choose(taken, chosen.seen)
    scale = float(positions.prompt_hidden.float().std())
    held_out = max(1, len(plans) // 20)
    known = [
        each
        for plan, of_prompt in zip(taken[held_out:], states[held_out:], strict=True)
        if (each := tagged_states(plan, of_prompt / scale, phrases, openings, closings)) is not None
    ]
    module = TrainableTagger(len(phrases), len(openings) + len(closings), states[0].shape[1], chosen)
    fit_tagger(module, known, len(openings), chosen)
    save_file(module.state(scale), model_dir / WEIGHTS, metadata={"format": "pt"})
    tokenizer = load_tokenizer(model_dir, settings.cache)
    texts = {
        name: [tokenizer.decode(list(phrase)) for phrase in kind]
        for name, kind in (("phrases", phrases), ("openings", openings), ("closings", closings))
    }
    (model_dir / CARD).write_text(json.dumps(texts | {"p_min": chosen.p_min}) + "\n", encoding="utf-8")
    weights = TaggerWeights(**{name: tensor.float() for name, tensor in module.state(scale).items()})
    tagger = PromptTagger(tuple(phrases), tuple(openings), tuple(closings), weights, chosen.p_min)
    drafts = [drafted(tagger, *pair) for pair in zip(prompts[:held_out], states[:held_out], strict=True)]
    return foretold(drafts, plans[:held_out])


def tagged_states(
    plan: Copied | None, states: Tensor, phrases: list[Phrase], openings: list[Phrase], closings: list[Phrase]
) -> Tagged | None:
    """Return what is to be learnt of a plan; None where it has an opening or closing that is too rare."""
    if plan is None or plan.opening not in openings or plan.closing not in closings:
        return None
    tags = torch.zeros(len(states), dtype=torch.int64)
    for phrase, first, last in plan.spans:
        tags[first] = BEGINS + phrases.index(phrase) if phrase in phrases else IGNORED
        tags[first + 1 : last + 1] = GOES_ON
    return Tagged(states, tags, openings.index(plan.opening), closings.index(plan.closing))


def main() -> None:
    arguments = part_parser(__doc__, "tagger").parse_args()
    settings = part_settings(arguments)
    whole, share = train_prompt_tagger(collect(settings, arguments.model), settings, arguments.model)
    print(
        f"{arguments.model}: of held-out plans {whole:.1%} are drafted whole, and {share:.1%} of their tokens in a row"
    )


if __name__ == "__main__":
    main()
