"""What the model gets to see of a question: the prompt, and the grammar that holds its answer.

The prompt is short on purpose: the model is tuned for this one task, so every instruction token would only cost
prefill time. One line an utterance, lower-cased, oldest first; the plan text follows the last line.
"""

import hashlib
from functools import cached_property

from service.engines.protocol import GenerationRequest, Strategy
from service.planner.grammar import plan_grammar
from service.planner.question import Question

_KEY_BYTES = 20
# Short and long, with one fact and with many, for help and for goods: what a replica generates before its first
# request, so that the gateway knows what a question of any length takes here.
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
    """One line an utterance; each starts with a space so that its words get the tokens that plan text will use."""
    return "".join(f" {utterance.lower()}\n" for utterance in question.utterances)


class PlanTask:
    """A question on its way to a plan: what is made of it is made when it is first asked for, and once."""

    def __init__(self, question: Question, deadline: float | None = None) -> None:
        """`deadline` is on the `time.monotonic` clock, in seconds."""
        self.question = question
        self.deadline = deadline
        self._keys: dict[str, str] = {}

    @cached_property
    def prompt(self) -> str:
        return render_prompt(self.question)

    @cached_property
    def grammar(self) -> str:
        return plan_grammar(self.question)

    @property
    def _seen(self) -> str:
        """All that a model gets to see."""
        words = "\x1f".join(f"{word.utterance} {word.text}" for word in self.question.words)
        return "\x1e".join((self.prompt, words, repr(self.question.numbers)))

    def key(self, version: str) -> str:
        """The same for questions that a model of this version answers alike."""
        if version not in self._keys:
            seen = f"{version}\x1e{self._seen}".encode()
            self._keys[version] = hashlib.blake2b(seen, digest_size=_KEY_BYTES).hexdigest()
        return self._keys[version]

    def request(self, strategy: Strategy, *, fast_forward: bool = True, trace: bool = False) -> GenerationRequest:
        """What is asked of an engine."""
        return GenerationRequest(
            prompt=self.prompt,
            grammar=self.grammar,
            strategy=strategy,
            fast_forward=fast_forward,
            trace=trace,
            deadline=self.deadline,
        )


def warm_up_requests(strategy: Strategy) -> list[GenerationRequest]:
    """Questions of every length that shoppers ask, for a replica's first generations."""
    questions = (Question.parse(newest, history) for *history, newest in _WARM_UP_QUESTIONS)
    return [PlanTask(question).request(strategy) for question in questions]
