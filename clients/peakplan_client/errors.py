"""What can go wrong. Every error is a `PeakplanError` and says what to do."""

from collections.abc import Sequence

from peakplan_client.plan import FieldProblem, Problem


class PeakplanError(Exception):
    """The base of every error of this package."""


class PlannerError(PeakplanError):
    """The planner gave no plan.

    `status` is the last HTTP status, `problem` the service's own account of it; `retry_after` is how many seconds it
    asked to be left alone. Each is None where the service said nothing of it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        problem: Problem | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.problem, self.retry_after = status, problem, retry_after

    @property
    def request_id(self) -> str | None:
        """The id under which the service's log has more."""
        return self.problem.request_id if self.problem else None

    @property
    def fields(self) -> Sequence[FieldProblem]:
        """The fields of the request that are wrong."""
        return self.problem.errors if self.problem else ()


class InvalidRequestError(PlannerError):
    """The request is wrong, and would be again (400, 413, 422): `fields` says where."""


class UnauthorizedError(PlannerError):
    """The token is missing or unknown (401, 403)."""


class UnavailableError(PlannerError):
    """No endpoint gave a plan in time."""


class RateLimitedError(UnavailableError):
    """This caller asks more than it may (429)."""


class UnexpectedAnswerError(PlannerError):
    """What answered is no planner of a known version: another service, or a proxy's page."""


class MappingError(PeakplanError):
    """The mapping file cannot be used: the message names file, key and what to do."""


class CatalogueError(PeakplanError):
    """The sample catalogue cannot be read, or its database not be reached: the message says what to do."""


class SearchTimeoutError(PeakplanError):
    """The sample shop did not answer in its time."""
