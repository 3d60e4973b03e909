// What identifies the model of a worker among others of the same name: its weights, adapters and vocabulary (ModelInfo.fingerprint), its chat
// template and its context. Two workers with the same one answer a request alike, except for what their processors round
// otherwise. A worker says it of itself, so it protects from mistakes, not from lies.

import { hex, sha256 } from "../base/sha256.ts";
import type { ModelInfo } from "../index.ts";

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

/** For people. */
export function shortFingerprint(fingerprint: string): string {
  return fingerprint.slice(0, 8);
}
