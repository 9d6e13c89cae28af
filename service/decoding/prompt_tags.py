"""A whole draft from the prompt's hidden states: which of its tokens an answer copies, and the phrases before them.

Once the prompt has been read, the model knows more of the answer than its next token. A small tagger reads the states
of all prompt positions and says of each token whether the answer leaves it out, begins to copy it after one of a few
phrases, or goes on copying with it; and how the answer opens and closes. From where the text stands, that is a draft
up to its end, below what Medusa heads guess of its next tokens. Verification drops what the model would not have
chosen, like any wrong guess.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.constraint import Constraint, known
from service.decoding.proposer import Budget, Guess, Proposer
from service.decoding.tree import NO_NODE, TokenTree, path_to

Phrase = tuple[int, ...]
LEFT_OUT, GOES_ON, BEGINS = 0, 1, 2  # tags; BEGINS + k: begins to be copied after phrase k
MOST_LEAVES = 8  # that are continued in one forward


@dataclass(frozen=True)
class TaggerWeights:
    """Weights of a tagger for K phrases, O openings and C closings, R features and states of width H, all float32.

    A position's features are SiLU of `inner` [R, H] of its state; two residual convolutions over positions, `near` and
    `far` [R, R, width], the first also sees `mean` [R, R] of the features' mean. `tags` [K + 2, R] scores a position's
    tags; `ends` [O + C, 3R], of the features' mean, their greatest and the last position's, the text's ends.
    """

    inner: Tensor
    inner_bias: Tensor
    mean: Tensor
    near: Tensor
    near_bias: Tensor
    far: Tensor
    far_bias: Tensor
    tags: Tensor
    tags_bias: Tensor
    ends: Tensor
    ends_bias: Tensor

    def scores(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores [B, T, K + 2] of the tags and [B, O + C] of the ends; `mask` [B, T] is 1 where a token is."""
        seen = mask[..., None]
        features = F.silu(F.linear(states, self.inner, self.inner_bias)) * seen
        count = seen.sum(1)
        of_mean = F.linear(features.sum(1) / count, self.mean)[:, None]
        features = (features + F.silu(_over_positions(features, self.near, self.near_bias) + of_mean)) * seen
        features = (features + F.silu(_over_positions(features, self.far, self.far_bias))) * seen
        last = features[torch.arange(len(features)), mask.sum(1).long() - 1]
        greatest = features.masked_fill(seen == 0, -torch.inf).amax(1)
        summary = torch.cat([features.sum(1) / count, greatest, last], -1)
        return F.linear(features, self.tags, self.tags_bias), F.linear(summary, self.ends, self.ends_bias)


def _over_positions(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return a convolution over positions, [B, T, R], as one product of its windows: torch's own is slow for so few."""
    width = weight.shape[-1]
    padded = F.pad(features, (0, 0, width // 2, width // 2))
    return F.linear(padded.unfold(1, width, 1).flatten(2), weight.flatten(1), bias)


@dataclass(frozen=True)
class PromptTagger:
    """The phrases that stand in answers but not in prompts, and the weights that place them."""

    phrases: tuple[Phrase, ...]
    openings: tuple[Phrase, ...]
    closings: tuple[Phrase, ...]
    weights: TaggerWeights
    p_min: float = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError where the numbers of phrases and of weights for them differ."""
        wanted = (len(self.phrases) + BEGINS, len(self.openings) + len(self.closings))
        found = (self.weights.tags.shape[0], self.weights.ends.shape[0])
        if wanted != found:
            raise ValueError(f"phrases and ends need weights for {wanted}, and there are {found}")

    @property
    def hidden_size(self) -> int:
        """Width of the states that it reads."""
        return self.weights.inner.shape[1]

    @cached_property
    def own(self) -> frozenset[int]:
        """The tokens of its phrases."""
        return frozenset(token for phrase in (*self.phrases, *self.openings, *self.closings) for token in phrase)

    def at_least(self, probability: float) -> "PromptTagger":
        """Return the same tagger with another `p_min`."""
        return replace(self, p_min=probability)

    @torch.inference_mode()
    def read(self, prompt: Sequence[int], states: Tensor) -> "TaggedPrompt":
        """Return what the states [T, H] of a prompt of T tokens say of its answer."""
        tags, ends = self.weights.scores(states.float()[None], torch.ones(1, len(prompt)))
        opening, closing = ends[0, : len(self.openings)], ends[0, len(self.openings) :]
        return TaggedPrompt(
            prompt,
            self,
            tags[0].softmax(-1).numpy(),
            self.openings[int(opening.argmax())],
            self.closings[int(closing.argmax())],
            float(closing.softmax(0).max()),
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text stands: the prompt's tokens before `end` are behind it, and `phrase` came since the last copied one.

    `copies`: its last token was copied. `begun`: some token was.
    """

    end: int = 1
    phrase: Phrase = ()
    copies: bool = False
    begun: bool = False


class TaggedPrompt:
    """What follows a place of the text, by the tags of the prompt."""

    def __init__(
        self,
        prompt: Sequence[int],
        tagger: PromptTagger,
        tags: NDArray[np.float32],
        opening: Phrase,
        closing: Phrase,
        closes: float,
    ) -> None:
        """Take the probabilities [T, K + 2] of the tags, and `closes`, the closing's."""
        self._prompt, self._tagger, self._tags = prompt, tagger, tags
        self._opening, self._closing, self._closes = opening, closing, closes
        self._best = tags.argmax(-1).tolist()
        self._begins = tags[:, BEGINS:].sum(-1).tolist()  # how likely it is that some copy begins at a position

    def walk(self, place: Place | None, tokens: Sequence[int]) -> Place | None:
        """Return the place after more tokens; None where they are neither of a phrase nor copied in order."""
        for token in tokens:
            if place is None:
                return None
            if place.copies and place.end < len(self._prompt) and self._prompt[place.end] == token:
                place = Place(place.end + 1, copies=True, begun=True)
            elif token in self._tagger.own:
                place = Place(place.end, (*place.phrase, token), begun=place.begun)
            else:
                place = self._copied(place, token)
        return place

    def _copied(self, place: Place, token: int) -> Place | None:
        """Return the place after a token that begins to be copied: where the tags think so, else at its first."""
        expected, _ = self._next_copy(place.end)
        found = [at for at in range(place.end, len(self._prompt)) if self._prompt[at] == token]
        if not found:
            return None
        at = expected if expected in found else found[0]
        return Place(at + 1, copies=True, begun=True)

    def _next_copy(self, start: int) -> tuple[int | None, float]:
        """Return where copying begins at `start` or later, and how likely it does not begin before."""
        none_before = 1.0
        for position in range(start, len(self._best)):
            if self._best[position] >= BEGINS:
                return position, none_before
            none_before *= 1.0 - self._begins[position]
        return None, none_before

    def next(self, place: Place) -> tuple[int, float] | None:
        """Return the token that comes next and its probability; None where the tags say nothing."""
        end = place.end
        if place.copies and end < len(self._best) and self._best[end] == GOES_ON:
            return self._prompt[end], float(self._tags[end, GOES_ON])
        begins, share = self._next_copy(end)
        follows, likely = self._closing, share * self._closes
        if begins is not None:
            tag = self._best[begins]
            follows, likely = self._tagger.phrases[tag - BEGINS], share * float(self._tags[begins, tag])
        said = place.phrase if place.begun else self._after_opening(place.phrase)
        if said is None:
            return self._opening[len(place.phrase)], 1.0
        if len(said) < len(follows) and follows[: len(said)] == said:
            return follows[len(said)], 1.0 if said else likely
        if begins is not None and said in self._tagger.phrases:
            return self._prompt[begins], share
        return None

    def _after_opening(self, phrase: Phrase) -> Phrase | None:
        """Return what was said after the text's opening; None where the opening has more to say."""
        if len(phrase) < len(self._opening) and self._opening[: len(phrase)] == phrase:
            return None
        fits = [opening for opening in (self._opening, *self._tagger.openings) if phrase[: len(opening)] == opening]
        return phrase[len(max(fits, key=len, default=())) :]


class PromptTagsProposer:
    """Drafts one chain by the tags of the prompt, and lets another proposer draft beside it."""

    def __init__(
        self,
        prompt: Sequence[int],
        tagger: PromptTagger,
        states: Callable[[], Tensor | None],
        then: Proposer,
        *,
        leaves: bool = False,
    ) -> None:
        """`states` returns those of the prompt's positions, [T, H] or more, once it was read; None where unknown.

        With `leaves` the other's guesses are continued by the tags, too, which pays only where rows cost nothing.
        """
        self._prompt, self._tagger, self._states, self._then, self._leaves = prompt, tagger, states, then, leaves
        self._tagged: TaggedPrompt | None = None

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        tagged = None if tree.first else self._read()
        place = None if tagged is None else tagged.walk(Place(), tree.text)
        if tagged is None or place is None:
            self._then.propose(tree, grammar, budget)
            return
        draft = _Draft(tree, known(grammar), budget, tagged, self._tagger.p_min)
        draft.follow(tree.root, place, 1.0)
        self._then.propose(tree, grammar, budget)
        if self._leaves:
            draft.continue_leaves(place)

    def _read(self) -> TaggedPrompt | None:
        if self._tagged is None:
            states = self._states()
            if states is not None and len(states) >= len(self._prompt):
                self._tagged = self._tagger.read(self._prompt, states[: len(self._prompt)].cpu())
        return self._tagged


@dataclass(frozen=True, slots=True)
class _Draft:
    """One tree that is being continued. The constraint stands at the root between calls."""

    tree: TokenTree
    constraint: Constraint
    budget: Budget
    tagged: TaggedPrompt
    p_min: float

    def continue_leaves(self, place: Place) -> None:
        """Continue the guesses that nothing was drafted after."""
        tree = self.tree
        parents = {parent for parent in tree.parents[tree.run :] if parent != NO_NODE}
        leaves = [node for node in range(tree.run, len(tree.tokens)) if node not in parents]
        for leaf in leaves[:MOST_LEAVES]:
            drafted = [tree.tokens[node] for node in path_to(leaf, tree.parents) if node > tree.root]
            there = self.tagged.walk(place, drafted)
            if there is None or self.budget.below(tree, leaf) <= 0:
                continue
            self.constraint.accept(drafted)
            try:
                if not self.constraint.finished():
                    self.follow(leaf, there, 1.0)
            finally:
                self.constraint.rollback(len(drafted))

    def follow(self, node: int, place: Place, probability: float) -> None:
        """Draft what follows a node, as far as it is likely, down to the text's end."""
        tree, expected = self.tree, self.tagged.next(place)
        if expected is None or self.budget.below(tree, node) <= 0:
            return
        token, share = expected
        if (probability := probability * share) < self.p_min:
            return
        if (child := tree.child(node, token)) is not None:
            self._descend(child, place, probability)
            return
        if tree.forced_child(node) is not None:
            return
        if not self.constraint.allows(token):
            return
        first = len(tree.tokens)
        with Guess(tree, self.constraint, self.budget, node, token) as last:
            there = self.tagged.walk(place, tree.tokens[first:])
            if last is not None and there is not None:
                self.follow(last, there, probability)

    def _descend(self, child: int, place: Place, probability: float) -> None:
        """Go on below a node that another proposer has drafted."""
        there = self.tagged.walk(place, [self.tree.tokens[child]])
        self.constraint.accept([self.tree.tokens[child]])
        try:
            if there is not None and not self.constraint.finished():
                self.follow(child, there, probability)
        finally:
            self.constraint.rollback(1)
