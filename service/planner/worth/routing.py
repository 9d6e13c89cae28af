"""Who plans a question: the model or, by choice, rules. It never changes a plan."""

from collections.abc import Callable

from service.planner.prompt import PlanTask
from service.planner.worth.features import Reading
from service.planner.worth.scorer import Scorer
from service.settings.choices import Routing


class Router:
    """Weighs questions by a model's scorer; a reload replaces it."""

    def __init__(
        self, routing: Routing = "off", scorer: Scorer | None = None, is_idle: Callable[[], bool] = lambda: False
    ) -> None:
        """Take `is_idle`, which tells whether a replica would start a question at once: then nobody asks its worth.

        Without a scorer, as in a model folder that has none, every question is the model's.
        """
        self.scorer = scorer
        self._routing = routing
        self._is_idle = is_idle

    def is_for_rules(self, task: PlanTask) -> bool:
        """Tell whether rules plan this by choice."""
        if (task.planners or self._routing) != "always" or self.scorer is None:
            return False
        return self.scorer.is_for_rules(self._weighed(task, self.scorer))

    def weigh(self, task: PlanTask) -> float:
        """Return what the model's plan of this is worth, 0 where nobody needs to know, and note it in the task."""
        if (task.planners or self._routing) == "off" or self.scorer is None or (task.worth is None and self._is_idle()):
            return 0.0
        return self._weighed(task, self.scorer)

    def expects_to_differ(self, task: PlanTask) -> float:
        """Return how likely the model's plan of this is to differ from that by rule; 0 where nothing is known."""
        return 0.0 if self.scorer is None else self.scorer.differs(self._weighed(task, self.scorer))

    @staticmethod
    def _weighed(task: PlanTask, scorer: Scorer) -> float:
        if task.worth is None:
            reading = Reading(task.conversation, task.vocabulary)
            task.worth, task.draft_by_rule = scorer.score(reading), reading.draft
        return task.worth
