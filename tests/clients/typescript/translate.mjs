// Prints the translations of a file's cases: [{plan, mapping, engine, question, limit}].

import { readFile } from "node:fs/promises";
import { translate } from "@peakplan/client";

const cases = JSON.parse(await readFile(process.argv[2], "utf8"));
const translated = cases.map(({ plan, mapping, engine, question, limit }) => translate(plan, mapping, engine, question, { limit }));
process.stdout.write(JSON.stringify(translated));
