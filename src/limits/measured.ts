// Measured speeds compared with their limits: reads the output of `lantern bench --json`, and computes the fraction
// reached.

import type { Device } from "../api/rates.ts";
import { byName } from "../base/by-name.ts";
import { UsageError } from "../base/errors.ts";
import { plural } from "../base/plural.ts";
import { decodeTotalMs, decodeWork } from "./decode.ts";
import type { ModelCost } from "./model-cost.ts";
import { prefillLimit } from "./prefill.ts";
import { type Limit, limitOf } from "./roofline.ts";

/** One speed: a prompt of `tokens`, or `tokens` generated after a single one. */
export interface Measured {
  readonly kind: "prompt" | "generation";
  readonly tokens: number;
  readonly tokensPerSecond: number;
  /** For display: "opt level 3, 2 threads". */
  readonly label: string;
}

export interface MeasuredSpeed extends Measured {
  readonly limitTokensPerSecond: number;
  readonly resource: Limit["resource"];
  /** The fraction of the limit that was reached. */
  readonly fraction: number;
}

/** A prompt is compared with the least work: its tokens share one read of the KV cache. */
export function measuredAgainst(
  measured: Measured,
  cost: ModelCost,
  device: Device,
): MeasuredSpeed {
  const { seconds, resource } =
    measured.kind === "prompt"
      ? prefillLimit(cost, device, measured.tokens, "shared")
      : generationLimit(cost, device, measured.tokens);
  const limit = measured.tokens / seconds;
  return {
    ...measured,
    limitTokensPerSecond: limit,
    resource,
    fraction: measured.tokensPerSecond / limit,
  };
}

function generationLimit(
  cost: ModelCost,
  device: Device,
  tokens: number,
): Pick<Limit, "seconds" | "resource"> {
  const { resource } = limitOf(decodeWork(cost, 1 + tokens / 2), device);
  return { seconds: decodeTotalMs(cost, device, 1, tokens + 1) / 1000, resource };
}

const kinds: Readonly<Record<string, Measured["kind"]>> = byName({
  pp: "prompt",
  tg: "generation",
});

/** The speeds in the JSON of `lantern bench`; a UsageError for anything else. */
export function measuredFromBench(json: unknown, file: string): Measured[] {
  const results = (json as { results?: unknown } | null)?.results;
  if (!Array.isArray(results) || results.length === 0) {
    throw notBench(file, 'no list "results"');
  }
  return results.map((result: Record<string, unknown>, index) => {
    const [, kind, tokens] = /^(pp|tg)(\d+)$/.exec(String(result?.test)) ?? [];
    const median = (result?.tokens_per_second as { median?: unknown } | undefined)?.median;
    if (kind === undefined || !(Number(tokens) > 0) || !(Number(median) > 0)) {
      throw notBench(file, `results[${index}] has no test as in pp128 with tokens per second`);
    }
    return {
      kind: kinds[kind]!,
      tokens: Number(tokens),
      tokensPerSecond: Number(median),
      label: `opt level ${String(result.level)}, ${plural(Number(result.threads), "thread")}`,
    };
  });
}

function notBench(file: string, found: string): UsageError {
  return new UsageError(
    `measured: ${file}: got ${found}, expected what "lantern bench --json" prints. Make it with: lantern bench -m MODEL --json > ${file}`,
  );
}
