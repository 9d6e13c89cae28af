/** Calls that end with one answer: a question, and a batch of questions for jobs that can wait. */

import { type Kind, LEAST_DEADLINE_MS, parsed, type Question, textOf } from "./call.js";
import { errorOf, type PlannerError, type Problem, UnavailableError, UnexpectedAnswerError } from "./errors.js";
import type { components } from "./schema.js";

type Schemas = components["schemas"];
export type PlanRequest = Schemas["PlanRequest"];
export type PlanAnswer = Schemas["PlanAnswer"];
export type BatchedRequest = Schemas["BatchedRequest"];
export type Planned = PlanAnswer | PlannerError;

export const NETWORK_MS = 200; // for the way there and back, beyond the deadline that the service keeps
const BATCH_NETWORK_MS = 2000;
const BATCH_DEADLINE_MS = 10_000; // of a question of a batch that has none
const BATCH_PAUSE_SECONDS = 1; // before what the service had no room for is sent again
const MOST_REQUESTS = 64;
const MOST_BYTES = 15 * 1024; // the service takes 16 KiB, unless PEAKPLAN_MAX_BODY_BYTES says otherwise
const MESSAGES = 8; // of the history, the newest, that the service reads,
const MESSAGE_CHARACTERS = 512; // and as many of each one's last characters

/** Return of a conversation what the service reads. */
export function newest(history: readonly string[]): string[] {
  return history.slice(-MESSAGES).map((message) => [...message].slice(-MESSAGE_CHARACTERS).join(""));
}

/** One question. */
export class OneQuestion implements Kind<PlanAnswer> {
  #answer: PlanAnswer | undefined;

  constructor(private readonly request: PlanRequest & { deadline_ms: number }) {}

  ask(left: number): Question | undefined {
    const deadline = Math.min(this.request.deadline_ms, Math.floor(left));
    if (deadline < LEAST_DEADLINE_MS) return undefined;
    const body = { ...this.request, deadline_ms: deadline };
    return { path: "/plan", body, milliseconds: Math.min(left, deadline + NETWORK_MS) };
  }

  async read(response: Response, url: string): Promise<undefined> {
    const answer = parsed(await textOf(response), url);
    if (!isAnswer(answer)) throw notAPlanner(url);
    this.#answer = answer;
  }

  result(): PlanAnswer {
    return this.#answer as PlanAnswer;
  }

  givenUp(error: PlannerError): never {
    throw error;
  }
}

/** A batch. What there was no room for is sent again while there is time; everything else is kept. */
export class Batch implements Kind<Planned[]> {
  readonly #found: (Planned | undefined)[];

  constructor(private readonly requests: readonly BatchedRequest[]) {
    this.#found = new Array<Planned | undefined>(requests.length);
  }

  ask(left: number): Question | undefined {
    const room = Math.floor(left - BATCH_NETWORK_MS);
    if (room < LEAST_DEADLINE_MS) return undefined;
    const requests = this.#open().map((number) => cut(this.requests[number] as BatchedRequest, room));
    const longest = Math.max(...requests.map((request) => request.deadline_ms));
    return { path: "/plans", body: { requests }, milliseconds: Math.min(left, longest + BATCH_NETWORK_MS) };
  }

  async read(response: Response, url: string): Promise<PlannerError | undefined> {
    const answer = parsed(await textOf(response), url);
    const answers = (answer as Partial<Schemas["PlansAnswer"]> | null)?.answers;
    const open = this.#open();
    if (!Array.isArray(answers) || answers.length !== open.length) throw notAPlanner(url);
    answers.forEach((each: Schemas["BatchedAnswer"], place) => {
      if (!isAnswer(each.answer) && !each.problem) throw notAPlanner(url);
      this.#found[open[place] as number] = each.answer ?? errorOfOne(each.problem as Problem, url);
    });
    return this.#found.find((found) => found instanceof UnavailableError) as PlannerError | undefined;
  }

  result(): Planned[] {
    return this.#found as Planned[];
  }

  givenUp(error: PlannerError): Planned[] {
    return Array.from(this.#found, (found) => found ?? error);
  }

  /** Return the numbers of the questions that have neither a plan nor a problem that would come again. */
  #open(): number[] {
    return [...this.#found.keys()].filter((number) => {
      const found = this.#found[number];
      return found === undefined || found instanceof UnavailableError;
    });
  }
}

/** Return requests in groups, each as large as the service takes. */
export function batches(requests: Iterable<string | BatchedRequest>): BatchedRequest[][] {
  const groups: BatchedRequest[][] = [];
  let room = 0;
  for (const given of requests) {
    const request = typeof given === "string" ? { query: given } : { ...given };
    if (Array.isArray(request.history)) request.history = newest(request.history);
    const size = new TextEncoder().encode(JSON.stringify(request)).length + 1;
    const last = groups.at(-1);
    if (last === undefined || size > room || last.length === MOST_REQUESTS) {
      groups.push([request]);
      room = MOST_BYTES - size;
    } else {
      last.push(request);
      room -= size;
    }
  }
  return groups;
}

function cut(request: BatchedRequest, room: number): BatchedRequest & { deadline_ms: number } {
  const given = request.deadline_ms ?? BATCH_DEADLINE_MS;
  return { ...request, deadline_ms: given < LEAST_DEADLINE_MS ? given : Math.min(given, room) };
}

export function isAnswer(answer: unknown): answer is PlanAnswer {
  return Array.isArray((answer as Partial<PlanAnswer> | null | undefined)?.plan?.queries);
}

function errorOfOne(problem: Problem, url: string): PlannerError {
  const told = `${url} answered this question with ${problem.status}: ${problem.detail || problem.title}`;
  return errorOf(told, { status: problem.status, problem, retryAfter: BATCH_PAUSE_SECONDS });
}

function notAPlanner(url: string): UnexpectedAnswerError {
  return new UnexpectedAnswerError(`${url} answered 200, but with no plan: is this a planner?`, { status: 200 });
}
