// The model of a launch: of those on this machine, one whose chat template knows tools, with a context that the client can work with and
// that fits in memory beside the weights.

import { locateModel as locateHere } from "../../../src/catalog/resolve.ts";
import { inspect, LanternError, UsageError } from "../../../src/index.ts";
import type { CliContext } from "../command.ts";
import { type FittedModel, listWithFits, loadPlan } from "../model-fits.ts";
import { bytesText, tableText } from "../text.ts";
import { ask, canAsk } from "./ask.ts";
import type { Client } from "./client.ts";

export interface ChosenModel {
  /** What `lantern serve -m` is given. */
  readonly name: string;
  /** undefined: it is not on this machine yet. */
  readonly path: string | undefined;
  /** The context to open it with; undefined: not known before it is here. */
  readonly contextSize: number | undefined;
  /** What speaks against it, as sentences. */
  readonly warnings: readonly string[];
}

/** Sizes that are tried, from what a session needs to what the client can just work with. */
function sizesOf({ context: { least, wanted } }: Client): number[] {
  return [...new Set([wanted, (wanted * 3) / 4, wanted / 2, least])].filter((n) => n >= least);
}

/** A model that somebody named. It is taken whatever speaks against it. */
export async function namedModel(
  name: string,
  client: Client,
  contextSize: number | undefined,
  context: CliContext,
): Promise<ChosenModel> {
  const path = await locateHere(name, context.downloads).catch((error: unknown) => {
    if (error instanceof LanternError) return undefined; // serve downloads it, or says what is wrong
    throw error;
  });
  if (path === undefined) return { name, path, contextSize, warnings: [] };
  const facts = await factsOf(path, client, context);
  const warnings: string[] = [];
  if (!facts?.knowsTools) {
    warnings.push(
      `${name} has no chat template that knows tools: Lantern explains them to it in words, which small models seldom follow.`,
    );
  }
  const size = contextSize ?? facts?.contextSize ?? facts?.trained;
  if (facts && size !== undefined && size < client.context.least) {
    warnings.push(
      `${client.title} needs a context of ${client.context.least} tokens at least, and ${name} gets ${size}${facts.trained <= size ? ", for which it was made" : ", which is what fits in memory"}.`,
    );
  }
  return { name, path, contextSize: size, warnings };
}

/** The best model of this machine; on a terminal, somebody chooses among them. */
export async function offeredModel(client: Client, context: CliContext): Promise<ChosenModel> {
  const listings = await listWithFits(context.downloads);
  const here = listings.filter(({ path, fit }) => path !== undefined && fit.fits !== "no");
  const offers: (ChosenModel & { listing: FittedModel })[] = [];
  for (const listing of here) {
    const path = listing.path!;
    const facts = await factsOf(path, client, context);
    if (!facts?.knowsTools || facts.contextSize === undefined) continue;
    const { contextSize } = facts;
    offers.push({ name: nameOf(listing), path, contextSize, warnings: [], listing });
  }
  if (offers.length === 0) throw noModel(client, listings);
  if (offers.length === 1 || !canAsk(context.terminal)) return offers[0]!;
  const rows = offers.map(({ name, contextSize, listing: { bytes, fit } }, at) => [
    `${at + 1}`,
    name,
    bytesText(bytes),
    `${contextSize} tokens`,
    fit.expected === undefined ? "" : `about ${fit.expected.toPrecision(2)} tokens/s`,
  ]);
  context.terminal.err(`Models for ${client.title}:\n${tableText(rows, [0, 2, 3])}`);
  const answer = await ask(`Which one? [1] `, context.terminal);
  if (answer === undefined) throw new UsageError("launch: no model was chosen");
  const chosen =
    offers[answer === "" ? 0 : Number(answer) - 1] ?? offers.find(({ name }) => name === answer);
  if (chosen) return chosen;
  throw new UsageError(
    `launch: got ${JSON.stringify(answer)}, expected a number from 1 to ${offers.length}`,
  );
}

/** A file that is known by its path only is served by its path. */
function nameOf({ name, path, state }: FittedModel): string {
  return state === "linked" ? path! : name;
}

interface ModelFacts {
  readonly knowsTools: boolean;
  readonly trained: number;
  /** The largest of the sizes that fits; undefined: none does. */
  readonly contextSize: number | undefined;
}

/** undefined: it cannot be run. */
async function factsOf(
  path: string,
  client: Client,
  { downloads }: CliContext,
): Promise<ModelFacts | undefined> {
  try {
    const { metadata } = await inspect(path);
    const template = metadata.find(({ key }) => key === "tokenizer.chat_template")?.preview.value;
    const { trainedContext: trained } = await loadPlan(path, undefined, undefined);
    const free = downloads.freeMemoryBytes();
    let contextSize: number | undefined;
    for (const size of sizesOf(client)) {
      if (contextSize !== undefined || size > trained) continue;
      const { totalBytes } = await loadPlan(path, size, undefined);
      if (totalBytes <= free) contextSize = size;
    }
    // The server derives the form of calls when the model is open; before that, whether the template asks for tools.
    return { knowsTools: /\btools\b/.test(String(template ?? "")), trained, contextSize };
  } catch (error) {
    if (error instanceof LanternError) return undefined;
    throw error;
  }
}

function noModel(client: Client, listings: readonly FittedModel[]): UsageError {
  const known = listings.filter(
    ({ path, chat, fit, name }) =>
      path === undefined && chat && fit.fits === "now" && /qwen3|qwen2\.5|llama-3\.[12]/.test(name),
  );
  const [best] = known;
  const advice = best
    ? `"lantern pull ${best.name}" downloads one (${bytesText(best.bytes)}); then repeat this, or name it: lantern launch ${client.name} ${best.name}`
    : `"lantern models" lists those that fit this machine`;
  return new UsageError(
    `launch: no model on this machine has a chat template that knows tools and a context of ${client.context.least} tokens that fits in memory, which ${client.title} needs. ${advice}`,
  );
}
