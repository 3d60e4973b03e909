// The file types, and how each mixes tensor types: which tensors get more bits than the rest. A table of facts, used
// by plan.ts. The mixes are llama.cpp's, so that a file type gives the same file.
//
// "Q4_K_M" is a file type: q4_k, with q6_k for some layers of the two most sensitive matrices. The rules for Falcon
// are left out, because this build does not know that architecture.

import { byName } from "../../base/by-name.ts";
import { UsageError } from "../../base/errors.ts";

/** What a tensor is for, as far as mixes depend on it. */
export type Role = "output" | "embedding" | "attnV" | "attnK" | "attnOutput" | "ffnDown" | "other";

/** What a mix may depend on. */
export interface MixFacts {
  /** The index of the tensor among those of its role, and their number. */
  readonly layer: number;
  readonly layers: number;
  /** Query heads per KV head. */
  readonly sharedHeads: number;
  readonly experts: number;
  readonly hasImportance: boolean;
}

/** The name of a type; undefined: the file's base type. */
type Choice = (facts: MixFacts) => string | undefined;

export interface FileType {
  readonly name: string;
  /** general.file_type: llama.cpp's number. */
  readonly id: number;
  readonly base: string;
  readonly mix?: Partial<Record<Role, Choice>>;
  /** The type of attn_output in models with 8 experts, instead of the mix's. */
  readonly expertsAttnOutput?: string;
}

/** The first and the last eighth of the layers, and every third in between. */
function getsMoreBits({ layer, layers }: MixFacts): boolean {
  const eighth = Math.floor(layers / 8);
  return layer < eighth || layer >= Math.floor((7 * layers) / 8) || (layer - eighth) % 3 === 2;
}

function isFirst({ layer, layers }: MixFacts, parts: number): boolean {
  return layer < Math.floor(layers / parts);
}

const moreBits: Choice = (facts) => (getsMoreBits(facts) ? "q6_k" : undefined);

const nonlinearMix: FileType["mix"] = {
  attnV: ({ sharedHeads }) => (sharedHeads >= 4 ? "q5_k" : undefined),
  ffnDown: (facts) => (isFirst(facts, 8) && !facts.hasImportance ? "q5_k" : undefined),
};

export const fileTypes: readonly FileType[] = [
  { name: "F32", id: 0, base: "f32" },
  { name: "F16", id: 1, base: "f16" },
  { name: "BF16", id: 32, base: "bf16" },
  {
    name: "Q4_0",
    id: 2,
    base: "q4_0",
    mix: { ffnDown: (facts) => (facts.hasImportance && isFirst(facts, 8) ? "q4_1" : undefined) },
  },
  { name: "Q4_1", id: 3, base: "q4_1" },
  {
    name: "Q5_0",
    id: 8,
    base: "q5_0",
    mix: { ffnDown: (facts) => (facts.hasImportance && isFirst(facts, 8) ? "q5_1" : undefined) },
  },
  { name: "Q5_1", id: 9, base: "q5_1" },
  { name: "Q8_0", id: 7, base: "q8_0" },
  {
    name: "Q2_K",
    id: 10,
    base: "q2_k",
    mix: {
      attnV: ({ sharedHeads }) => (sharedHeads >= 4 ? "q4_k" : "q3_k"),
      ffnDown: () => "q3_k",
      attnOutput: () => "q3_k",
    },
    expertsAttnOutput: "q5_k",
  },
  { name: "Q3_K_S", id: 11, base: "q3_k", expertsAttnOutput: "q5_k" },
  {
    name: "Q3_K_M",
    id: 12,
    base: "q3_k",
    mix: {
      attnV: ({ layer }) => (layer < 2 ? "q5_k" : "q4_k"),
      ffnDown: (facts) => (isFirst(facts, 16) ? "q5_k" : "q4_k"),
      attnOutput: () => "q4_k",
    },
    expertsAttnOutput: "q5_k",
  },
  {
    name: "Q3_K_L",
    id: 13,
    base: "q3_k",
    mix: { attnV: () => "q5_k", ffnDown: () => "q5_k", attnOutput: () => "q5_k" },
  },
  {
    name: "Q4_K_S",
    id: 14,
    base: "q4_k",
    mix: {
      attnV: ({ layer }) => (layer < 4 ? "q5_k" : undefined),
      ffnDown: (facts) => (isFirst(facts, 8) ? "q5_k" : undefined),
    },
    expertsAttnOutput: "q5_k",
  },
  {
    name: "Q4_K_M",
    id: 15,
    base: "q4_k",
    mix: { attnV: moreBits, ffnDown: moreBits },
    expertsAttnOutput: "q5_k",
  },
  { name: "Q5_K_S", id: 16, base: "q5_k" },
  { name: "Q5_K_M", id: 17, base: "q5_k", mix: { attnV: moreBits, ffnDown: moreBits } },
  { name: "Q6_K", id: 18, base: "q6_k" },
  { name: "IQ4_NL", id: 25, base: "iq4_nl", mix: nonlinearMix, expertsAttnOutput: "q5_k" },
  { name: "IQ4_XS", id: 30, base: "iq4_xs", mix: nonlinearMix, expertsAttnOutput: "q5_k" },
];

const aliases: Readonly<Record<string, string>> = byName({
  Q3_K: "Q3_K_M",
  Q4_K: "Q4_K_M",
  Q5_K: "Q5_K_M",
});

/** Types that do not depend on a role. */
export const special = {
  /** The output matrix, and an embedding that is also the output. */
  output: "q6_k",
  /** The same if rows are not whole blocks of the base type. */
  outputOddRows: "q8_0",
  /** Keys and values of a model with 8 experts: small compared with the experts. */
  experts: "q8_0",
  /** Values of a model with 80 layers and shared heads: small there, so they get more bits. */
  largeModelValues: { from: ["q3_k", "q4_k"], to: "q5_k" },
  /** If not even the fallback has whole blocks. */
  lastResort: "f16",
} as const;

/** The type of a tensor whose rows are not whole blocks. */
export const fallbacks: Readonly<Record<string, string>> = byName({
  q2_k: "q4_0",
  q3_k: "q4_0",
  q4_k: "q5_0",
  q5_k: "q5_1",
  q6_k: "q8_0",
  iq4_xs: "iq4_nl",
});

export function fileTypeNamed(name: string): FileType {
  const wanted = name.toUpperCase();
  const found = fileTypes.find((type) => type.name === (aliases[wanted] ?? wanted));
  if (found) return found;
  const known = fileTypes.map((type) => type.name).join(", ");
  throw new UsageError(`quantize: type: got "${name}", expected one of ${known}`);
}
