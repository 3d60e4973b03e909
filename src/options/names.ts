// How sentences name an option: by its flag at the command line, by its field or label over HTTP and in the page. The library's own
// sentences have its name in the API.

import { byName } from "../base/by-name.ts";
import { generationRows } from "./generation.ts";
import { openRows } from "./open.ts";
import type { OptionRow } from "./row.ts";
import { samplingRows } from "./sampling.ts";

/** Options of the tools (limits, tune, quantize, verify, convert), and those of a generation that no row has. */
const others: Readonly<Record<string, { readonly flag?: string; readonly said?: string }>> = byName(
  {
    logitBias: { flag: "--logit-bias", said: "logit_bias" },
    memoryBytes: { flag: "--memory", said: "memory" },
    draftTokens: { flag: "--draft-tokens", said: "drafted tokens" },
    saveBase: { flag: "--save-base", said: "saved base" },
    mStep: { flag: "--m-step" },
    mNum: { flag: "--m-num" },
    ...Object.fromEntries(
      [
        "kv",
        "device",
        "context",
        "rate",
        "acceptance",
        "pooling",
        "tolerance",
        "layers",
        "tokens",
      ].map((name) => [name, { flag: `--${name}` }]),
    ),
    "tensor type": { flag: "--tensor-type" },
    mask: { flag: "--cpu-mask" },
    range: { flag: "--cpu-range" },
    strict: { flag: "--cpu-strict" },
    numa: { flag: "--numa" },
  },
);

const rows: Readonly<Record<string, OptionRow>> = byName({
  ...openRows,
  ...generationRows,
  ...samplingRows,
});

/** "-c", "--top-k"; undefined: it is no flag. */
export function flagOf(option: string): string | undefined {
  const row = rows[option];
  return row ? (row.shortFlag ?? /--[\w-]+/.exec(row.flag ?? "")?.[0]) : others[option]?.flag;
}

/** Its field in requests. */
export function fieldOf(option: string): string | undefined {
  return rows[option]?.field;
}

/** "top_k", "context"; undefined: no request or page has it. */
export function labelOf(option: string): string | undefined {
  const row = rows[option];
  return row ? (row.said ?? row.field ?? row.label) : others[option]?.said;
}

/** Of two words, so that no sentence has one of them by chance. */
const inSentences = Object.keys({ ...rows, ...others }).filter((name) => /[a-z][A-Z]/.test(name));
const anyName = new RegExp(`\\b(?:${inSentences.join("|")})\\b`, "g");

/** "threads: got 0, ...": the option that a sentence begins with. Rows begin any sentence, other words those about a value. */
const leading = /^(\w+(?: type)?)(?=(?:\[[^\]]*\])?: ("|got\b)?)/;

/** A sentence of the library with other names of the options in it. */
export function withNames(text: string, nameOf: (option: string) => string | undefined): string {
  const begun = text.replace(leading, (name: string, _: string, value: string | undefined) => {
    const isOption = rows[name] !== undefined || value !== undefined;
    return (isOption ? nameOf(name) : undefined) ?? name;
  });
  return begun.replace(anyName, (option) => nameOf(option) ?? option);
}
