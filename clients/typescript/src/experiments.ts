/** Who gets which arm of an experiment, and two searches in one list: the same as in the service and in Python. */

const BUCKETS = 10_000;

/** An arm and its share, a whole number. In a list, because an object's keys may come in another order. */
export type Arm = readonly [name: string, share: number];

/** Tell whether the header `x-experiment-unit` can carry this id. Who has another one is in no arm of a service. */
export function isUnit(shopper: string): boolean {
  return /^[\x21-\x7e]{1,100}$/.test(shopper);
}

/** Return the shopper's bucket in this experiment, from 0 to 9,999. Pages need a secure context (https, localhost). */
export async function bucket(experiment: string, shopper: string): Promise<number> {
  return (await digest(`${experiment}:${shopper}`)).getUint32(0) % BUCKETS;
}

/** Return the shopper's arm; arms take buckets in their order, each its share. Throws RangeError. */
export async function assigned(experiment: string, arms: readonly Arm[], shopper: string): Promise<string> {
  const whole = total(arms);
  const place = await bucket(experiment, shopper);
  let end = 0;
  for (const [name, share] of arms) {
    end += share;
    if (place * whole < end * BUCKETS) return name;
  }
  throw new RangeError("shares end at their sum");
}

function total(arms: readonly Arm[]): number {
  const sum = arms.reduce((sum, [, share]) => sum + share, 0);
  if (!(sum > 0) || arms.some(([, share]) => share < 0)) {
    throw new RangeError("arms need shares of 0 and more, one of them above 0");
  }
  return sum;
}

/**
 * An experiment whose arms are hosts: another model, release or shop folder each.
 *
 * `endpoints` has the arms' own, by name; the client's endpoints are those of every other arm.
 */
export class Trial {
  readonly endpoints: ReadonlyMap<string, readonly string[]>;

  /** Throws RangeError for shares that are none, and for endpoints of an arm that has no share. */
  constructor(
    readonly name: string,
    readonly arms: readonly Arm[],
    endpoints: Readonly<Record<string, string | readonly string[]>> = {},
  ) {
    total(arms);
    this.endpoints = new Map(Object.entries(endpoints).map(([arm, urls]) => [arm, typeof urls === "string" ? [urls] : urls]));
    const unknown = [...this.endpoints.keys()].filter((name) => !arms.some(([known]) => known === name));
    if (unknown.length) throw new RangeError(`no share is given for ${unknown.sort().join(", ")}`);
  }

  /** Return the shopper's arm. */
  arm(shopper: string): Promise<string> {
    return assigned(this.name, this.arms, shopper);
  }
}

/** One list made of two, and for every place whose product it is: "" where both have it there. */
export interface Interleaved<T> {
  products: T[];
  teams: ("a" | "b" | "")[];
}

/**
 * Draft one list from two, as two captains choose teams; the same `seed` (a plan's request_id) gives the same list.
 *
 * Products are compared by `===`: give ids. Source: Radlinski, Kurup and Joachims, "How does clickthrough data reflect
 * retrieval quality?", CIKM 2008 (team draft). What both begin with alike belongs to nobody.
 */
export async function interleave<T extends string | number>(
  a: readonly T[],
  b: readonly T[],
  { length, seed }: { length: number; seed: string },
): Promise<Interleaved<T>> {
  const coins = await digest(seed);
  const products: T[] = [];
  while (products.length < length && products.length < Math.min(a.length, b.length)) {
    const next = a[products.length] as T;
    if (next !== b[products.length] || products.includes(next)) break;
    products.push(next);
  }
  const teams = products.map((): "a" | "b" | "" => "");
  const taken = new Set(products);
  let ahead = 0; // of a's products
  for (let tossed = 0; products.length < length; ) {
    const left = { a: a.find((each) => !taken.has(each)), b: b.find((each) => !taken.has(each)) };
    let team: "a" | "b";
    if (left.a === undefined || left.b === undefined) {
      if (left.a === left.b) break;
      team = left.a === undefined ? "b" : "a";
    } else if (ahead !== 0) {
      team = ahead > 0 ? "b" : "a";
    } else {
      team = coin(coins, tossed++);
    }
    const product = left[team] as T;
    products.push(product);
    teams.push(team);
    taken.add(product);
    ahead += team === "a" ? 1 : -1;
  }
  return { products, teams };
}

/** Return 1 where the shopper chose more of a's products, -1 where more of b's, 0 where as many. */
export function credit<T>({ products, teams }: Interleaved<T>, chosen: Iterable<T>): -1 | 0 | 1 {
  const taken = new Set(chosen);
  const count = (team: string) => products.filter((each, place) => teams[place] === team && taken.has(each)).length;
  return Math.sign(count("a") - count("b")) as -1 | 0 | 1;
}

function coin(coins: DataView, number: number): "a" | "b" {
  return (coins.getUint8((number >> 3) % coins.byteLength) >> (number & 7)) & 1 ? "b" : "a";
}

async function digest(text: string): Promise<DataView> {
  return new DataView(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
}
