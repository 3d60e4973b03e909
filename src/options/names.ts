// How sentences name an option: by its flag at the command line, by its field or label over HTTP and in the page. The library's own
// sentences have its name in the API; a name of one word, and a setting, stand in backticks there (`exact: false`).

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
    replace: { flag: "--force", said: "delete that file first" },
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
function flagOf(option: string): string | undefined {
  const row = rows[option];
  return row ? (row.shortFlag ?? /--[\w-]+/.exec(row.flag ?? "")?.[0]) : others[option]?.flag;
}

/** Its field in requests. */
export function fieldOf(option: string): string | undefined {
  return rows[option]?.field;
}

/** "top_k", "context"; undefined: no request or page has it. */
function labelOf(option: string): string | undefined {
  const row = rows[option];
  return row ? (row.said ?? row.field ?? row.label) : others[option]?.said;
}

/** How a reader's sentences name options. undefined: as the library does. */
interface Names {
  option(name: string): string | undefined;
  /** `value` is as in code: `"cpu"`, `32`, `false`. */
  setting(name: string, value: string): string | undefined;
}

const bare = (value: string): string => value.replaceAll('"', "");

/** At the command line: "--backend cpu", "--no-exact". */
const flagNames: Names = {
  option: flagOf,
  setting(name, value) {
    const flag = flagOf(name);
    if (flag === undefined || value === "true") return flag;
    return value === "false" ? flag.replace(/^--/, "--no-") : `${flag} ${bare(value)}`;
  },
};

/** Over HTTP and in the page: "backend cpu", "no exact". */
const labelNames: Names = {
  option: labelOf,
  setting(name, value) {
    const label = labelOf(name);
    if (label === undefined || value === "true") return label;
    return value === "false" ? `no ${label}` : `${label} ${bare(value)}`;
  },
};

/** An option or a setting as code has it, between backticks: `numa`, `exact: false`, `kvType: "f32"`. */
const marked = /`([a-z]\w*)(?:: ("[^"`]*"|[\w.]+))?`/gi;

/** Of two words, so that no sentence has one of them by chance. */
const inSentences = Object.keys({ ...rows, ...others }).filter((name) => /[a-z][A-Z]/.test(name));
const anyName = new RegExp(`\\b(?:${inSentences.join("|")})\\b`, "g");

/** "threads: got 0, ...": the option that a sentence begins with. Rows begin any sentence, other words those about a value. */
const leading = /^(\w+(?: type)?)(?=(?:\[[^\]]*\])?: ("|got\b)?)/;

/** "generate(): ...": a function of the API, which other readers know without its brackets. */
const called = /\b([a-z][A-Za-z]+)\(\): /g;

/** A sentence of the library in a reader's names. */
function withNames(text: string, names: Names): string {
  return text
    .replace(called, "$1: ")
    .replace(leading, (name: string, _: string, value: string | undefined) => {
      const isOption = rows[name] !== undefined || value !== undefined;
      return (isOption ? names.option(name) : undefined) ?? name;
    })
    .replace(marked, (whole, name: string, value: string | undefined) => {
      const said = value === undefined ? names.option(name) : names.setting(name, value);
      return said ?? whole;
    })
    .replace(anyName, (option) => names.option(option) ?? option);
}

/** For readers at the command line. */
export const inFlags = (text: string): string => withNames(text, flagNames);

/** For readers in the app or over HTTP. */
export const inPageWords = (text: string): string => withNames(text, labelNames);
