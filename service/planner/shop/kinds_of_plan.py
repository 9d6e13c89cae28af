"""The shop's own categories that a plan is about, where the shop folder has any and one is sure."""

from typing import Final, NamedTuple

from service.engines.meaning import QuestionMeaning
from service.planner.plan import MAX_KINDS, Kind, Plan
from service.planner.question import Question
from service.planner.shop import current
from service.planner.shop.kinds import Kinds, Thing
from service.planner.vocabulary import Vocabulary


class Need(NamedTuple):
    """The words that tell what something is for; "" where a thing is named. `is_told`: they name no thing."""

    text: str = ""
    is_told: bool = False


NO_NEED: Final = Need()


def with_kinds(
    plan: Plan,
    question: Question,
    vocabulary: Vocabulary,
    need: Need = NO_NEED,
    meaning: QuestionMeaning | None = None,
) -> Plan:
    """Return the plan with the categories of the shop that it is about, if it is about products and any is sure.

    `meaning` is what the model made of the question, where it has read it: it counts where it was trained with the
    shop's vectors, on one utterance as all that it was trained on.
    """
    shop = current.lexicon()
    if shop is None or shop.kinds is None or not plan.queries or not vocabulary.intents[plan.intent].products:
        return plan
    is_read = need.is_told and meaning is not None and _is_usable(meaning, question, shop.kinds)
    pointed = meaning.direction if meaning is not None and is_read else ()
    of = (plan,) if need.is_told else plan.parts or (plan,)
    things = [Thing(" ".join(each.queries[:1]), each.facets.get("type", ()), *need, pointed) for each in of]
    kinds = [Kind(id=each.id, name=each.name) for each in shop.kinds.of(things, MAX_KINDS)]
    return plan.model_copy(update={"kinds": kinds}) if kinds else plan


def _is_usable(meaning: QuestionMeaning, question: Question, kinds: Kinds) -> bool:
    return meaning.space == kinds.space and len(question.utterances) == 1
