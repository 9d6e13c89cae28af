"""What can go wrong. Every error is a `PeakplanError` and says what to do."""

from collections.abc import Sequence

from peakplan_client.plan import FieldProblem, Problem


class PeakplanError(Exception):
    """The base of every error of this package."""


class PlannerError(PeakplanError):
    """The planner gave no plan. `problem` is its own account, where it gave one; `status` the last HTTP status."""

    def __init__(self, message: str, *, status: int | None = None, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem

    @property
    def request_id(self) -> str | None:
        """The id under which the service's log has more."""
        return self.problem.request_id if self.problem else None


class InvalidRequestError(PlannerError):
    """The request is wrong, and would be again (400, 413, 422): `fields` says where."""

    @property
    def fields(self) -> Sequence[FieldProblem]:
        return self.problem.errors if self.problem else ()


class UnauthorizedError(PlannerError):
    """The token is missing or unknown (401, 403)."""


class UnavailableError(PlannerError):
    """No endpoint gave a plan in time. `retry_after` is how many seconds the service asked to be left alone."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        problem: Problem | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, status=status, problem=problem)
        self.retry_after = retry_after


class RateLimitedError(UnavailableError):
    """This caller asks more than it may (429)."""


class UnexpectedAnswerError(PlannerError):
    """What answered is no planner of a known version: another service, or a proxy's page."""


class MappingError(PeakplanError):
    """The mapping file cannot be used: the message names file, key and what to do."""


class CatalogueError(PeakplanError):
    """The sample catalogue cannot be had: the message says what to do."""


class SearchTimeoutError(PeakplanError):
    """The sample shop did not answer in its time."""
