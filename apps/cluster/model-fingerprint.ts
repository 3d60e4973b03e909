// The fingerprint of a worker's model, which tells it from others of the same name: its weights, adapters and vocabulary
// (ModelInfo.fingerprint), its chat template and its context. Two workers with the same fingerprint answer a request alike, except for the
// rounding of their processors. A worker reports its own, so it protects from mistakes, not from lies.

import { hex, sha256 } from "../../src/base/sha256.ts";
import type { ModelInfo } from "../../src/index.ts";

/** Hexadecimal digits: short enough for subjects and lists. */
const DIGITS = 32;

export function modelFingerprint(info: ModelInfo): string {
  const { architecture, parameters, weightType, vocabSize, contextSize } = info;
  const { fingerprint = "", chatTemplate = "" } = info;
  const facts = [architecture, parameters, weightType, vocabSize, contextSize];
  const text = JSON.stringify([...facts, fingerprint, chatTemplate]);
  return hex(sha256(new TextEncoder().encode(text))).slice(0, DIGITS);
}

export function isModelFingerprint(value: unknown): boolean {
  return typeof value === "string" && /^[0-9a-f]{32}$/.test(value);
}

/** A short form for people. */
export function shortFingerprint(fingerprint: string): string {
  return fingerprint.slice(0, 8);
}
