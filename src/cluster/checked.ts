// What workers say of themselves, checked before a gateway believes it: a browser tab is somebody else's program, and one wrong number would
// be in every sum of the gateway. What a worker answers to a call is checked by nobody: a call is all that it can spoil.

import { UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
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

/** What tells one model from another, and what every list of models shows. */
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

/** Throws a UsageError for what no worker says. */
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
