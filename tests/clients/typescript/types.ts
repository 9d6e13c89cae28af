// What must compile, and what must not: the compiler alone reads this.
import { type AnswerEvent, assigned, type BatchedRequest, Client, EventSender, interleave, isPlanned, type Plan, PlannerError, type PlanRequest, type ShopperEvent, Trial, type Wish } from "@peakplan/client";

const least: PlanRequest = { query: "red boots" }; // fields with defaults are optional
const whole: BatchedRequest = { query: "red boots", history: ["hello"], deadline_ms: 20_000, locale: null };
// @ts-expect-error: a query is required
const none: PlanRequest = {};

export async function shown(client: Client): Promise<string[]> {
  const { plan, degraded } = await client.plan(least.query);
  const most: number | null = plan.price.max; // fields of an answer are there
  const intent: Plan["intent"] = plan.intent;
  // @ts-expect-error: no intent of the vocabulary
  const wrong: Plan["intent"] = "sell_product";
  const [first] = await client.plans([whole, "red boots"]);
  if (first === undefined || !isPlanned(first)) return [first instanceof PlannerError ? first.message : ""];
  return [...first.plan.queries, intent, String(most), String(degraded), wrong, String(none)];
}

export async function sold(client: Client): Promise<string[]> {
  const found: string[] = [];
  for await (const event of client.answer(least.query, { deadlineMs: 250 })) {
    if (event.event === "plan") found.push(...event.data.plan.queries); // the name tells the type
    // @ts-expect-error: only the end has its times
    if (event.event !== "done") found.push(String(event.data.total_ms));
    if (event.event !== "options") continue;
    const reason: string | null = event.data.reason;
    found.push(reason ?? "", ...event.data.options.flatMap((option) => option.met.map((wish: Wish) => wish.says)));
  }
  // @ts-expect-error: no event of an answer
  const wrong: AnswerEvent["event"] = "end";
  return [...found, wrong];
}

export async function reported(events: EventSender, shopper: string): Promise<string> {
  const least: ShopperEvent = { action_name: "came_back", query_id: "48bf" };
  events.put(least);
  // @ts-expect-error: no name of UBI's or ours
  events.put({ action_name: "stare", query_id: "48bf" });
  const { teams } = await interleave(["a"], ["b"], { length: 1, seed: "48bf" });
  return (await assigned("autumn", [["control", 50]], shopper)) + teams.join("");
}

export async function tried(shopper: string): Promise<string> {
  const trial = new Trial("autumn", [["control", 50], ["newer", 50]], { newer: "https://cell-2.example" });
  // @ts-expect-error: an object's keys may come in another order
  const unordered = new Trial("autumn", { control: 50 });
  await new Client("https://cell-1.example", { trial }).plan("red boots", { shopper });
  return (await trial.arm(shopper)) + unordered.name;
}
