"""What the model reads before it writes the plan text.

The prompt is short on purpose: the model is tuned for this one task, so every instruction token would only cost
prefill time. One line an utterance, lower-cased, oldest first; the plan text follows the last line.
"""

from service.planner.question import Question


def render_prompt(question: Question) -> str:
    """One line an utterance; each starts with a space so that its words get the tokens that plan text will use."""
    return "".join(f" {utterance.lower()}\n" for utterance in question.utterances)
