/** What can go wrong. Every error says what to do; `problem` is the service's own account of it (RFC 9457). */

import type { components } from "./schema.js";

export type Problem = components["schemas"]["Problem"];
export type FieldProblem = components["schemas"]["FieldProblem"];

export interface Reason {
  status?: number | undefined;
  problem?: Problem | undefined;
  /** The seconds that the service asked to be left alone. */
  retryAfter?: number | undefined;
}

/** The planner gave no plan. `status` is the last HTTP status; undefined where nothing answered. */
export class PlannerError extends Error {
  readonly status: number | undefined;
  readonly problem: Problem | undefined;
  readonly retryAfter: number | undefined;

  constructor(message: string, reason: Reason = {}) {
    super(message);
    this.name = new.target.name;
    this.status = reason.status;
    this.problem = reason.problem;
    this.retryAfter = reason.retryAfter;
  }

  /** The id under which the service's log has more. */
  get requestId(): string | undefined {
    return this.problem?.request_id;
  }

  /** The fields of the request that are wrong. */
  get fields(): readonly FieldProblem[] {
    return this.problem?.errors ?? [];
  }
}

/** The request is wrong, and would be again (400, 413, 422): `fields` says where. */
export class InvalidRequestError extends PlannerError {}

/** The token is missing or unknown (401, 403). */
export class UnauthorizedError extends PlannerError {}

/** No endpoint gave a plan in time. */
export class UnavailableError extends PlannerError {}

/** This caller asks more than it may (429). */
export class RateLimitedError extends UnavailableError {}

/** The service is there, and refuses pages of this page's origin: its `PEAKPLAN_CORS_ORIGINS` does not name it. */
export class OriginRefusedError extends UnavailableError {}

/** What answered is no planner of a known version: another service, or a proxy's page. */
export class UnexpectedAnswerError extends PlannerError {}

/** Return the error of an answer with this status. */
export function errorOf(told: string, reason: Reason & { status: number }): PlannerError {
  const { status } = reason;
  if (status === 429) return new RateLimitedError(told, reason);
  if (status >= 500) return new UnavailableError(told, reason);
  if (status === 401 || status === 403) return new UnauthorizedError(`${told} Give the client the right token.`, reason);
  return reason.problem ? new InvalidRequestError(told, reason) : new UnexpectedAnswerError(told, reason);
}
