// The flags of less common samplers, under llama.cpp's names: DRY, XTC, top-n-sigma, mirostat, dynamic temperature,
// and the order of the samplers. flags.ts adds them to every command that generates.

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
    help: "drop tokens whose logit is this many standard deviations below the highest one; -1: off (default: -1)",
    rule: {},
  },
  {
    flag: "--xtc-probability <p>",
    help: "XTC: probability of leaving out the most likely tokens; 0: off (default: 0)",
    rule: share,
  },
  {
    flag: "--xtc-threshold <p>",
    help: "XTC: tokens from this probability up can be left out (default: 0.1)",
    rule: share,
  },
  {
    flag: "--dynatemp-range <x>",
    help: "dynamic temperature: how far it may vary; 0: off (default: 0)",
    rule: positive,
  },
  {
    flag: "--dynatemp-exp <x>",
    help: "dynamic temperature: exponent that maps entropy to temperature (default: 1)",
    rule: positive,
  },
  {
    flag: "--mirostat <n>",
    help: "use version 1 or 2 of mirostat in place of the other samplers; 0: off (default: 0)",
    rule: { integer: true, min: 0, max: 2 },
  },
  {
    flag: "--mirostat-lr <x>",
    help: "mirostat: learning rate (eta) (default: 0.1)",
    rule: positive,
  },
  {
    flag: "--mirostat-ent <x>",
    help: "mirostat: target entropy (tau) (default: 5)",
    rule: positive,
  },
  {
    flag: "--dry-multiplier <x>",
    help: "DRY: penalty for continuing a repetition; 0: off (default: 0)",
    rule: positive,
  },
  {
    flag: "--dry-base <x>",
    help: "DRY: growth of the penalty with each token of the repetition (default: 1.75)",
    rule: positive,
  },
  {
    flag: "--dry-allowed-length <n>",
    help: "DRY: longest repetition without a penalty (default: 2)",
    rule: { integer: true, min: 0 },
  },
  {
    flag: "--dry-penalty-last-n <n>",
    help: "DRY: how many recent tokens are searched for repetitions; 0: off, -1: all (default: 64)",
    rule: { integer: true, min: 0, also: -1 },
  },
];

export function addMoreSamplingFlags(command: Command): Command {
  for (const { flag, help, rule } of numberFlags) command.option(flag, help, numberFlag(rule));
  return command
    .option(
      "--dry-sequence-breaker <text>",
      'DRY: text that ends a repetition, in place of a line break, ":", quotes and "*"; none: no text does; repeatable',
      repeatedFlag,
    )
    .option(
      "--samplers <names>",
      "the samplers in the order in which they run (default: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)",
    )
    .option(
      "--sampler-seq <letters>",
      "the same, with one letter for each sampler (default: edskypmxt)",
    );
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

/** Unescapes \n and the like: a line break is hard to type in a shell. */
function unescaped(text: string): string {
  return text.replaceAll("\\n", "\n").replaceAll("\\t", "\t");
}
