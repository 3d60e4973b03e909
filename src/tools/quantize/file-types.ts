// The file types, and how each mixes tensor types: which tensors get more bits than the rest. A table of facts, used
// by plan.ts. The mixes are llama.cpp's, so that a file type gives the same file.
//
// "Q4_K_M" is a file type: q4_k, with q6_k for some layers of the two most sensitive matrices. Two architectures have
// mixes of their own (architectureMixes).

import { byName } from "../../base/by-name.ts";
import { UsageError } from "../../base/errors.ts";
import { dtypeByName } from "../../dtypes/table.ts";

/** The purpose of a tensor, as far as mixes depend on it. */
export type Role =
  | "output"
  | "embedding"
  | "attnV"
  | "attnK"
  | "attnQ"
  | "attnOutput"
  | "ffnDown"
  | "ffnGate"
  | "ffnUp"
  | "other";

/** The facts that a mix may depend on. */
export interface MixFacts {
  /** The index of the tensor within its role, and the number of these tensors; with experts, the index of its layer. */
  readonly layer: number;
  readonly layers: number;
  /** The index of the tensor within its role, with experts, too. */
  readonly counted: number;
  /** Matrices in the tensor: one per expert. */
  readonly matrices: number;
  /** Query heads per KV head. */
  readonly sharedHeads: number;
  readonly experts: number;
  readonly hasImportance: boolean;
}

/** The name of a type; undefined: the file's base type. */
type Choice = (facts: MixFacts) => string | undefined;

export interface FileType {
  /** Its number is in base/file-type-names.ts. */
  readonly name: string;
  readonly base: string;
  readonly mix?: Partial<Record<Role, Choice>>;
  /** The type of attn_output in models with 8 experts, instead of the mix's. */
  readonly expertsAttnOutput?: string;
  /** The type of the output matrix, instead of special.output. */
  readonly output?: string;
  /** Whether the mix holds for models with 8 experts and with 80 layers, too, which have rules of their own otherwise. */
  readonly mixIsFinal?: true;
  /** The reason why a model may have no tensor of the base type, and advice. */
  readonly without?: string;
  /** A tensor type that layers of such a file get only with an importance matrix, where the base type does not say so. */
  readonly needsImportance?: string;
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

/** The 1- and 2-bit types: `better` for the tensors that suffer most. */
function lowBits(
  better: string,
  attnOutput?: string,
): Pick<FileType, "mix" | "output" | "mixIsFinal"> {
  return {
    output: "q5_k",
    mixIsFinal: true,
    mix: {
      embedding: () => better,
      attnV: ({ sharedHeads, experts }) => (sharedHeads >= 4 || experts >= 4 ? "q4_k" : better),
      attnK: ({ experts }) => (experts === 8 ? "q4_k" : undefined),
      ffnDown: ({ counted, layers }) => (counted < Math.floor(layers / 8) ? better : undefined),
      attnOutput: ({ experts }) => (experts === 8 ? "q5_k" : attnOutput),
    },
  };
}

const sharedValues: Choice = ({ sharedHeads }) => (sharedHeads >= 4 ? "q4_k" : undefined);

/** Fewer bits for the layers between the first and the last eighth. */
const fewerBitsBetween: Choice = (facts) =>
  isFirst(facts, 8) || facts.layer >= Math.floor((7 * facts.layers) / 8) ? undefined : "iq3_xxs";

const ternaryMix: FileType["mix"] = { embedding: () => "q4_k" };

const nonlinearMix: FileType["mix"] = {
  attnV: ({ sharedHeads }) => (sharedHeads >= 4 ? "q5_k" : undefined),
  ffnDown: (facts) => (isFirst(facts, 8) && !facts.hasImportance ? "q5_k" : undefined),
};

export const fileTypes: readonly FileType[] = [
  { name: "F32", base: "f32" },
  { name: "F16", base: "f16" },
  { name: "BF16", base: "bf16" },
  {
    name: "Q4_0",
    base: "q4_0",
    mix: { ffnDown: (facts) => (facts.hasImportance && isFirst(facts, 8) ? "q4_1" : undefined) },
  },
  { name: "Q4_1", base: "q4_1" },
  {
    name: "Q5_0",
    base: "q5_0",
    mix: { ffnDown: (facts) => (facts.hasImportance && isFirst(facts, 8) ? "q5_1" : undefined) },
  },
  { name: "Q5_1", base: "q5_1" },
  { name: "Q8_0", base: "q8_0" },
  {
    name: "Q2_K",
    base: "q2_k",
    mix: {
      attnV: ({ sharedHeads }) => (sharedHeads >= 4 ? "q4_k" : "q3_k"),
      ffnDown: () => "q3_k",
      attnOutput: () => "q3_k",
    },
    expertsAttnOutput: "q5_k",
  },
  {
    name: "Q2_K_S",
    base: "q2_k",
    needsImportance: "q2_k",
    mix: {
      attnV: sharedValues,
      ffnDown: (facts) => (isFirst(facts, 8) ? "q4_k" : undefined),
    },
  },
  { name: "Q3_K_S", base: "q3_k", expertsAttnOutput: "q5_k" },
  {
    name: "Q3_K_M",
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
    base: "q3_k",
    mix: { attnV: () => "q5_k", ffnDown: () => "q5_k", attnOutput: () => "q5_k" },
  },
  {
    name: "Q4_K_S",
    base: "q4_k",
    mix: {
      attnV: ({ layer }) => (layer < 4 ? "q5_k" : undefined),
      ffnDown: (facts) => (isFirst(facts, 8) ? "q5_k" : undefined),
    },
    expertsAttnOutput: "q5_k",
  },
  {
    name: "Q4_K_M",
    base: "q4_k",
    mix: { attnV: moreBits, ffnDown: moreBits },
    expertsAttnOutput: "q5_k",
  },
  { name: "Q5_K_S", base: "q5_k" },
  { name: "Q5_K_M", base: "q5_k", mix: { attnV: moreBits, ffnDown: moreBits } },
  { name: "Q6_K", base: "q6_k" },
  { name: "IQ4_NL", base: "iq4_nl", mix: nonlinearMix, expertsAttnOutput: "q5_k" },
  { name: "IQ4_XS", base: "iq4_xs", mix: nonlinearMix, expertsAttnOutput: "q5_k" },
  {
    name: "IQ3_XXS",
    base: "iq3_xxs",
    output: "q5_k",
    mix: {
      embedding: () => "iq3_s",
      attnV: ({ sharedHeads, hasImportance }) =>
        sharedHeads >= 4 ? "q4_k" : hasImportance ? undefined : "iq3_s",
      attnK: () => "iq2_s",
      attnQ: () => "iq2_s",
      ffnDown: (facts) => (facts.hasImportance ? undefined : isFirst(facts, 8) ? "q4_k" : "q3_k"),
      attnOutput: () => "iq3_s",
    },
    expertsAttnOutput: "q5_k",
  },
  {
    name: "IQ3_XS",
    base: "iq3_s",
    needsImportance: "iq3_xxs",
    mix: {
      attnV: sharedValues,
      attnK: () => "iq3_xxs",
      attnQ: () => "iq3_xxs",
      ffnGate: fewerBitsBetween,
      ffnUp: fewerBitsBetween,
    },
    expertsAttnOutput: "q5_k",
  },
  {
    name: "IQ3_S",
    base: "iq3_s",
    mix: { attnV: sharedValues },
    expertsAttnOutput: "q5_k",
  },
  {
    name: "IQ3_M",
    base: "iq3_s",
    mix: {
      attnV: () => "q4_k",
      ffnDown: (facts) =>
        isFirst(facts, 8) || (facts.experts === 8 && getsMoreBits(facts)) ? "q4_k" : undefined,
      attnOutput: () => "q4_k",
    },
    expertsAttnOutput: "q5_k",
  },
  { name: "IQ2_XXS", base: "iq2_xxs", ...lowBits("q2_k") },
  { name: "IQ2_XS", base: "iq2_xs", ...lowBits("q2_k") },
  { name: "IQ2_S", base: "iq2_xs", ...lowBits("iq3_s", "iq3_s") },
  { name: "IQ2_M", base: "iq2_s", ...lowBits("iq3_s", "iq3_s") },
  { name: "IQ1_S", base: "iq1_s", ...lowBits("q2_k", "iq2_xxs") },
  { name: "IQ1_M", base: "iq1_m", ...lowBits("q2_k", "iq2_xxs") },
  { name: "TQ1_0", base: "tq1_0", mix: ternaryMix },
  { name: "TQ2_0", base: "tq2_0", mix: ternaryMix },
  {
    name: "MXFP4_MOE",
    base: "mxfp4",
    without:
      "MXFP4_MOE has only experts in MXFP4 and everything else in Q8_0, and this model has no experts. --pure makes all of it MXFP4; Q4_K_M, IQ4_NL and Q4_0 are types of four bits for dense models",
    output: "q8_0",
    mixIsFinal: true,
    mix: byRole(({ matrices }) => (matrices > 1 ? undefined : "q8_0")),
  },
];

/** The same choice for all roles. */
function byRole(choice: Choice): Record<Exclude<Role, "output">, Choice> {
  return {
    embedding: choice,
    attnV: choice,
    attnK: choice,
    attnQ: choice,
    attnOutput: choice,
    ffnDown: choice,
    ffnGate: choice,
    ffnUp: choice,
    other: choice,
  };
}

/** The differences of an architecture's files: by the file type's name, then by role. */
export interface ArchitectureMix {
  /** The type of the output matrix in every file type. */
  readonly output?: string;
  readonly types: Readonly<Record<string, Partial<Record<Role, Choice>>>>;
}

const baseType: Choice = () => undefined;
const expertsOnly: Choice = ({ matrices }) => (matrices > 1 ? undefined : "q8_0");

/** The mixes by general.architecture. */
export const architectureMixes: Readonly<Record<string, ArchitectureMix>> = byName({
  falcon: {
    output: "q8_0",
    types: byName({
      Q2_K: { attnOutput: baseType },
      IQ3_XXS: { attnOutput: baseType },
      IQ3_M: { attnOutput: baseType },
      Q3_K_M: {
        attnOutput: baseType,
        ffnDown: (facts) =>
          isFirst(facts, 16) ? "q5_k" : getsMoreBits(facts) ? "q4_k" : undefined,
      },
      Q3_K_L: { attnOutput: () => "q4_k", ffnDown: () => "q4_k" },
      Q4_K_S: { ffnDown: baseType },
      Q4_K_M: {
        ffnDown: (facts) =>
          isFirst(facts, 16) ? "q6_k" : getsMoreBits(facts) ? "q5_k" : undefined,
      },
    }),
  },
  // The matrices of its latent attention have three dimensions, too, and are no experts.
  bailingmoe3: {
    types: byName({
      MXFP4_MOE: {
        ...byRole(() => "q8_0"),
        ffnUp: expertsOnly,
        ffnGate: expertsOnly,
        ffnDown: expertsOnly,
      },
    }),
  },
});

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
  /** Values of large models (largeModels): their heads are shared, so values are small and get more bits. */
  largeModelValues: { from: ["q3_k", "q4_k"], to: "q5_k" },
  /** If not even the fallback has whole blocks. */
  lastResort: "f16",
} as const;

/**
 * The models that llama.cpp takes for a 70B model, by general.architecture: the number of layers, and whether only with shared
 * heads.
 */
export const largeModels: Readonly<Record<string, { layers: number; sharedHeads?: true }>> = byName(
  {
    llama: { layers: 80, sharedHeads: true },
    "llama-embed": { layers: 80, sharedHeads: true },
    qwen2: { layers: 80 },
    deci: { layers: 80 },
    olmo: { layers: 80 },
    jais2: { layers: 68 },
  },
);

/** The type of a tensor with rows that are not whole blocks. */
export const fallbacks: Readonly<Record<string, string>> = byName({
  q2_k: "q4_0",
  q3_k: "q4_0",
  q4_k: "q5_0",
  q5_k: "q5_1",
  q6_k: "q8_0",
  tq1_0: "q4_0",
  tq2_0: "q4_0",
  iq1_s: "iq4_nl",
  iq1_m: "iq4_nl",
  iq2_xxs: "iq4_nl",
  iq2_xs: "iq4_nl",
  iq2_s: "iq4_nl",
  iq3_xxs: "iq4_nl",
  iq3_s: "iq4_nl",
  iq4_xs: "iq4_nl",
});

/** Whether such a file cannot be made without an importance matrix. */
export function needsImportance({ base, needsImportance: other }: FileType): boolean {
  return other !== undefined || dtypeByName(base)!.needsImportance !== undefined;
}

export function fileTypeNamed(name: string): FileType {
  const wanted = name.toUpperCase();
  const found = fileTypes.find((type) => type.name === (aliases[wanted] ?? wanted));
  if (found) return found;
  const known = fileTypes.map((type) => type.name).join(", ");
  throw new UsageError(`quantize: type: got "${name}", expected one of ${known}`);
}
