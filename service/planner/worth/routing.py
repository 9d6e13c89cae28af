"""Who plans a question: the model or, by choice, rules. It never changes a plan."""

import random
from collections import deque
from collections.abc import Callable

from service.planner.prompt import PlanTask
from service.planner.worth.features import Reading
from service.planner.worth.scorer import Scorer
from service.settings.choices import Routing

_LATELY = 256  # worths of questions that competed for replicas


class Router:
    """Weighs questions by a model's scorer; a reload replaces it.

    Where an experiment has an arm that is routed by worth and one that is not, both compete for the same replicas, and
    what is worth nothing would lose to everything. So a question of the second arm has the worth of another that
    competed lately, drawn by chance: both arms get as many plans by the model, one for the best of its questions.
    """

    def __init__(
        self,
        routing: Routing = "off",
        scorer: Scorer | None = None,
        is_idle: Callable[[], bool] = lambda: False,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Take `is_idle`, which tells whether a replica would start a question at once: then nobody asks its worth.

        Without a scorer, as in a model folder that has none, every question is the model's.
        """
        self.scorer = scorer
        self._routing = routing
        self._is_idle = is_idle
        self._draw = draw
        self._lately: deque[float] = deque(maxlen=_LATELY)

    def is_for_rules(self, task: PlanTask) -> bool:
        """Tell whether rules plan this by choice."""
        if (task.planners or self._routing) != "always" or self.scorer is None:
            return False
        is_new = task.worth is None
        is_for_rules = self.scorer.is_for_rules(worth := self._weighed(task, self.scorer))
        if is_new and not is_for_rules:
            self._lately.append(worth)
        return is_for_rules

    def weigh(self, task: PlanTask) -> float:
        """Return what the model's plan of this is worth, 0 where nobody needs to know, and note it in the task."""
        if self.scorer is None or (task.worth is None and self._is_idle()):
            return 0.0
        is_new = task.worth is None
        if (task.planners or self._routing) == "off":
            if is_new and self._lately:
                task.worth = self._lately[int(self._draw() * len(self._lately))]
            return task.worth or 0.0
        worth = self._weighed(task, self.scorer)
        if is_new:
            self._lately.append(worth)
        return worth

    def expects_to_differ(self, task: PlanTask) -> float:
        """Return how likely the model's plan of this is to differ from that by rule; 0 where nothing is known."""
        return 0.0 if self.scorer is None else self.scorer.differs(self._weighed(task, self.scorer))

    @staticmethod
    def _weighed(task: PlanTask, scorer: Scorer) -> float:
        if task.worth is None:
            reading = Reading(task.conversation, task.vocabulary)
            task.worth, task.draft_by_rule = scorer.score(reading), reading.draft
        return task.worth
