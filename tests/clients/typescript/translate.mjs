// Translates what it is given: [{plan, mapping, engine, question, limit}] on standard input, translations on standard output.

import { text } from "node:stream/consumers";

const { translate } = await import(process.argv[2] ?? "@peakplan/client");
const cases = JSON.parse(await text(process.stdin));
process.stdout.write(
  JSON.stringify(cases.map(({ plan, mapping, engine, question, limit }) => translate(plan, mapping, engine, question, { limit }))),
);
