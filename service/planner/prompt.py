"""The model's input for a question: the prompt, and the grammar that constrains the answer.

The prompt is short on purpose: the model is tuned for this one task, so every instruction token would only cost prefill
time. It has each utterance, lower-cased, oldest first; the plan text follows the last, so that the prompt of a turn
goes on from that of the turn before.
"""

import hashlib
import json
from dataclasses import fields
from functools import cached_property
from typing import Literal

from service.engines.protocol import GenerationRequest
from service.planner.grammar import plan_grammar
from service.planner.question import Question
from service.planner.reader.reading import Reader, Reading
from service.planner.shop import current
from service.planner.vocabulary import Vocabulary
from service.settings.choices import Strategy

Planners = Literal["rules", "off", "overload", "always"]  # a Routing, or the reader for every question
_KEY_BYTES = 20
# Short and long questions, with one fact or many, about orders and products: a replica generates their plans before its
# first request, so that the gateway can estimate the time of a question of any length.
_WARM_UP_QUESTIONS = (
    ("red shoes",),
    ("where is my order",),
    ("nike running shoes size 10",),
    ("red rain jacket for women", "what about in blue?"),
    ("waterproof hiking boots for women under $120",),
    ("i need a quiet blender for smoothies, under $80 please",),
    ("can i return a toaster oven that i opened but never used, and who pays for sending it back?",),
    ("travel backpacks with a laptop compartment", "water resistant ones under 100 dollars", "something smaller"),
)


def render_prompt(question: Question) -> str:
    """Render the utterances as they stand, in lower case, each with a mark behind it.

    Each starts with a space, for the same tokens as in plan text. The mark is no line break: before a digit that would
    be one token with the space after it, and the tokens of a turn would not begin with those of the turn before.
    """
    return "".join(f" {utterance.lower().replace('|', '/')} |" for utterance in question.utterances)


class PlanTask:
    """A question to plan; prompt, grammar and key are computed on first use, and only once."""

    def __init__(
        self,
        question: Question,
        vocabulary: Vocabulary,
        deadline: float | None = None,
        caller: str = "",
        client: str = "",
        reader: Reader | None = None,
    ) -> None:
        """Take `deadline`, on the `time.monotonic` clock, in seconds, and the `caller` for whom plans are kept apart.

        A cached plan would tell one caller what another has asked. `client` is who shares the replicas with others:
        the caller, or else an address. `reader` drafts the plan; without one the model drafts alone.
        """
        self.caller = caller
        self.client = client
        self.question = question
        self.vocabulary = vocabulary
        self.deadline = deadline
        self.reader = reader
        self.worth: float | None = None  # how likely the model's plan is to be better than the reader's; None: unasked
        self.planners: Planners | None = None  # who plans, where an experiment says so and not the settings
        self.cached_for = ""  # the arm of an experiment whose plans are cached apart from those of others
        self._keys: dict[str, str] = {}

    @cached_property
    def reading(self) -> Reading | None:
        """The question as the reader reads it, once; None without one."""
        return None if self.reader is None else self.reader.read(self.question, self.vocabulary)

    @cached_property
    def prompt(self) -> str:
        """What the model reads: the conversation as it stands."""
        return render_prompt(self.question)

    @cached_property
    def grammar(self) -> str:
        return plan_grammar(self.question, self.vocabulary)

    def key(self, version: str) -> str:
        """Return the cache key: a digest of all that decides a plan by a model of this version.

        It has every field of the question, as later code reads the letters' case and the locale, too.
        """
        if version not in self._keys:
            shop = current.lexicon()
            asked = [getattr(self.question, field.name) for field in fields(self.question)]
            decided_by = [version, self.vocabulary.digest, shop and shop.digest, self.caller, self.cached_for]
            whole = json.dumps([*decided_by, self.prompt, asked])  # no text can look like the end of another in JSON
            self._keys[version] = hashlib.blake2b(whole.encode(), digest_size=_KEY_BYTES).hexdigest()
        return self._keys[version]

    def request(self, strategy: Strategy, *, fast_forward: bool = True, trace: bool = False) -> GenerationRequest:
        reading = self.reading if strategy == "medusa" else None
        return GenerationRequest(
            prompt=self.prompt,
            grammar=self.grammar,
            strategy=strategy,
            fast_forward=fast_forward,
            trace=trace,
            deadline=self.deadline,
            worth=self.worth or 0.0,
            client=self.client,
            cache_salt=self.caller,
            earlier=self.prompt.rfind("|", 0, -1) + 1,
            prediction=() if reading is None else reading.words,
        )


def warm_up_requests(
    strategy: Strategy, vocabulary: Vocabulary, reader: Reader | None = None
) -> list[GenerationRequest]:
    questions = (Question.parse(newest, history) for *history, newest in _WARM_UP_QUESTIONS)
    return [PlanTask(question, vocabulary, reader=reader).request(strategy) for question in questions]
