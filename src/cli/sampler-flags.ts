// The flags of the less common steps of sampling, under llama.cpp's names: DRY, XTC, top-n-sigma, mirostat, a dynamic
// temperature, and the order of the steps. flags.ts adds them to every command that generates.

import type { Command } from "commander";
import type { GenerateOptions } from "../index.ts";
import { type NumberRule, numberFlag, repeatedFlag } from "./flag-values.ts";

export interface MoreSamplingFlags {
  topNsigma?: number;
  xtcProbability?: number;
  xtcThreshold?: number;
  dynatempRange?: number;
  dynatempExp?: number;
  mirostat?: number;
  mirostatLr?: number;
  mirostatEnt?: number;
  dryMultiplier?: number;
  dryBase?: number;
  dryAllowedLength?: number;
  dryPenaltyLastN?: number;
  drySequenceBreaker?: string[];
  samplers?: string;
  samplerSeq?: string;
}

interface NumberFlag {
  flag: string;
  help: string;
  rule: NumberRule;
}

const share: NumberRule = { min: 0, max: 1 };
const positive: NumberRule = { min: 0 };

const numberFlags: readonly NumberFlag[] = [
  {
    flag: "--top-nsigma <n>",
    help: "drop tokens this many standard deviations below the likeliest; -1: off (default: -1)",
    rule: {},
  },
  {
    flag: "--xtc-probability <p>",
    help: "how often the likeliest tokens are left out; 0: off (default: 0)",
    rule: share,
  },
  {
    flag: "--xtc-threshold <p>",
    help: "from which probability on a token counts as one of them (default: 0.1)",
    rule: share,
  },
  {
    flag: "--dynatemp-range <x>",
    help: "let the temperature vary by this much; 0: off (default: 0)",
    rule: positive,
  },
  {
    flag: "--dynatemp-exp <x>",
    help: "how entropy becomes temperature (default: 1)",
    rule: positive,
  },
  {
    flag: "--mirostat <n>",
    help: "keep the text's surprise steady, in place of the other steps: 1 or 2; 0: off (default: 0)",
    rule: { integer: true, min: 0, max: 2 },
  },
  {
    flag: "--mirostat-lr <x>",
    help: "mirostat's learning rate, eta (default: 0.1)",
    rule: positive,
  },
  { flag: "--mirostat-ent <x>", help: "mirostat's target, tau (default: 5)", rule: positive },
  {
    flag: "--dry-multiplier <x>",
    help: "penalty for going on with a repetition (DRY); 0: off (default: 0)",
    rule: positive,
  },
  {
    flag: "--dry-base <x>",
    help: "the penalty's growth with each token of the repetition (default: 1.75)",
    rule: positive,
  },
  {
    flag: "--dry-allowed-length <n>",
    help: "repetitions up to this length are fine (default: 2)",
    rule: { integer: true, min: 0 },
  },
  {
    flag: "--dry-penalty-last-n <n>",
    help: "how far back repetitions are looked for; 0: off, -1: all (default: 64)",
    rule: { integer: true, min: 0, also: -1 },
  },
];

export function addMoreSamplingFlags(command: Command): Command {
  for (const { flag, help, rule } of numberFlags) command.option(flag, help, numberFlag(rule));
  return command
    .option(
      "--dry-sequence-breaker <text>",
      'a text that ends a repetition, in place of a line break, ":", quotes and "*"; none: nothing does; repeatable',
      repeatedFlag,
    )
    .option(
      "--samplers <names>",
      "the steps of sampling in their order (default: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)",
    )
    .option("--sampler-seq <letters>", "the same by letters (default: edskypmxt)");
}

export function moreSamplingOptions(flags: MoreSamplingFlags): GenerateOptions {
  const options: { [K in keyof GenerateOptions]: GenerateOptions[K] | undefined } = {
    topNSigma: flags.topNsigma,
    xtcProbability: flags.xtcProbability,
    xtcThreshold: flags.xtcThreshold,
    dynatempRange: flags.dynatempRange,
    dynatempExponent: flags.dynatempExp,
    mirostat: flags.mirostat,
    mirostatEta: flags.mirostatLr,
    mirostatTau: flags.mirostatEnt,
    dryMultiplier: flags.dryMultiplier,
    dryBase: flags.dryBase,
    dryAllowedLength: flags.dryAllowedLength,
    dryPenaltyLastN: flags.dryPenaltyLastN,
    drySequenceBreakers: flags.drySequenceBreaker?.filter((text) => text !== "none").map(unescaped),
    samplers: flags.samplers?.split(";") ?? flags.samplerSeq,
  };
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given) as GenerateOptions;
}

/** A line break is hard to type in a shell. */
function unescaped(text: string): string {
  return text.replaceAll("\\n", "\n").replaceAll("\\t", "\t");
}
