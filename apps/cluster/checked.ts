// Checks workers' messages about themselves before a gateway believes them: a browser tab is another person's program, and one wrong number
// would be in every sum of the gateway. A worker's answer to a call is not checked: a wrong one spoils that call only.

import { UsageError } from "../../src/base/errors.ts";
import { show } from "../../src/base/show.ts";
import type { Beat, WorkerFacts } from "./messages.ts";
import { isModelFingerprint } from "./model-fingerprint.ts";
import { decode } from "./wire.ts";

type Check = (value: unknown) => boolean;

/** More than any worker computes at a time, and little enough to add up. */
const MOST_PLACES = 65_536;

/** 1024 fingerprints (fingerprints.ts) take less. */
const MOST_HELD_TEXT = 8192;

const text: Check = (value) => typeof value === "string";
const flag: Check = (value) => typeof value === "boolean";
const amount: Check = (value) => typeof value === "number" && value >= 0 && value < Infinity;
const count: Check = (value) => Number.isSafeInteger(value) && amount(value);
const record: Check = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const beatChecks: Readonly<Record<keyof Beat, Check>> = {
  worker: text,
  model: (value) => text(value) && value !== "",
  fingerprint: isModelFingerprint,
  calls: (value) => record(value) && Object.values(value as object).every(count),
  lines: count,
  capacity: (value) => count(value) && 0 < Number(value) && Number(value) <= MOST_PLACES,
  tokensPerSecond: amount,
  promptPerSecond: amount,
  held: (value) => text(value) && String(value).length <= MOST_HELD_TEXT,
  isLeaving: flag,
};

/** The facts that tell one model from another, and that every list of models shows. */
const infoChecks: Readonly<Partial<Record<keyof WorkerFacts["info"], Check>>> = {
  name: text,
  architecture: text,
  parameters: amount,
  weightType: text,
  weightBytes: amount,
  vocabSize: count,
  contextSize: count,
  trainedContext: count,
  hasChatTemplate: flag,
  generates: flag,
  backend: record,
  warnings: (value) => value === undefined || (Array.isArray(value) && value.every(text)),
};

/** Throws a UsageError for a message that no worker sends. */
export function readBeat(data: Uint8Array): Beat {
  return checked(decode(data), beatChecks, "a heartbeat") as Beat;
}

export function readFacts(data: Uint8Array): WorkerFacts {
  const facts = checked(decode(data), { info: record, version: text }, "facts") as WorkerFacts;
  checked(facts.info, infoChecks, "facts of a model");
  return facts;
}

function checked(value: unknown, checks: Readonly<Record<string, Check>>, what: string): unknown {
  const found = record(value) ? (value as Readonly<Record<string, unknown>>) : {};
  for (const [key, isRight] of Object.entries(checks)) {
    const got = Object.hasOwn(found, key) ? found[key] : undefined;
    if (isRight(got)) continue;
    throw new UsageError(
      `cluster: got ${what} with ${key} ${show(got)}, which no worker of this version says. Use the same version of Lantern on all machines`,
    );
  }
  return value;
}
