// Which files of a hub repository make up one model, and which model of a repository to take: the named quantization,
// or the best one for this machine's memory. Pure functions of a list of files.

import { SourceError, UsageError } from "../base/errors.ts";
import type { HubFile } from "./hub-client.ts";

/** One model of a repository: a file, or all parts of a split one, in order. */
export interface HubVariant {
  /** "Q4_K_M"; undefined if the file's name does not have one. */
  quantization: string | undefined;
  files: readonly HubFile[];
  bytes: number;
}

const splitName = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/i;
/** A part of a file name that names a type: "Q4_K_M", "IQ2_XXS", "UD-Q4_K_XL", "f16". */
const typeName =
  /(?:^|[-._/])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)+|TQ\d_\d|BF16|F16|F32|FP16|FP32|MXFP4(?:_MOE)?))(?=$|[-.])/gi;
const longestName = 300;
/** Not language models: vision projectors, importance matrices. */
const otherFiles = /(^|[/_.-])(mmproj|imatrix)/i;

/** The quantization in a file's name, in capitals; undefined if there is none. */
export function quantizationOf(path: string): string | undefined {
  const name = path.slice(-longestName); // a hub may say anything
  const stem = name.replace(splitName, "$1").replace(/\.gguf$/i, "");
  return [...stem.matchAll(typeName)].at(-1)?.[1]?.toUpperCase();
}

/** The names of all files of a split GGUF ("x-00001-of-00003.gguf"), else the file itself. */
export function splitFiles(file: string): string[] {
  const match = splitName.exec(file);
  if (!match) return [file];
  const [, stem, , total] = match as unknown as [string, string, string, string];
  return Array.from({ length: Number(total) }, (_, index) => {
    return `${stem}-${String(index + 1).padStart(5, "0")}-of-${total}.gguf`;
  });
}

/** The models of a repository, smallest first. A split one with a missing part is left out. */
export function variantsOf(files: readonly HubFile[]): HubVariant[] {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const variants: HubVariant[] = [];
  for (const { path } of files) {
    const parts = splitFiles(path);
    if (parts[0] !== path || otherFiles.test(path)) continue;
    const found = parts.map((part) => byPath.get(part));
    if (found.some((file) => file === undefined)) continue;
    const all = found as HubFile[];
    const bytes = all.reduce((sum, file) => sum + file.bytes, 0);
    variants.push({ quantization: quantizationOf(path), files: all, bytes });
  }
  return variants.sort((a, b) => a.bytes - b.bytes);
}

/** Memory that a model takes besides its weights, roughly: a context, buffers, the program. */
const besidesBytes = 500e6;
/** The fraction of the machine's memory that one model may take. */
const usableShare = 0.8;

/** Whether a file of that size can run with that much memory; an exact answer needs the file's header. */
export function roughlyFits(bytes: number, memoryBytes: number): boolean {
  return bytes + besidesBytes <= memoryBytes * usableShare;
}

/**
 * Best first. Most people use 4 bits: with fewer bits, answers quickly get worse; with more, they hardly get better
 * and every token takes longer.
 */
const preference: readonly string[] = [
  ...["Q4_K_M", "Q4_K_S", "UD-Q4_K_XL", "Q4_K_L", "Q5_K_M", "Q5_K_S", "Q4_0", "IQ4_XS", "IQ4_NL"],
  ...["Q4_1", "Q5_0", "Q5_1", "Q6_K", "Q8_0", "Q3_K_L", "Q3_K_M", "IQ3_M", "Q3_K_S", "IQ3_S"],
  ...["IQ3_XS", "IQ3_XXS", "Q2_K", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "BF16", "F16", "F32"],
];
/** Models up to this size are taken with 8 bits: small models lose the most with fewer bits, and are fast anyway. */
const smallBytes = 1e9;

export interface VariantWish {
  repo: string;
  quantization: string | undefined;
  /** Memory of the machine; undefined: not known, so everything fits. */
  memoryBytes: number | undefined;
}

/** The named variant, or the best one that fits; an error lists all variants. */
export function chooseVariant(variants: readonly HubVariant[], wish: VariantWish): HubVariant {
  const { repo, quantization, memoryBytes } = wish;
  if (variants.length === 0) {
    throw new SourceError(
      `hub: ${repo} has no GGUF files. Look for a repository of the same model whose name ends in GGUF: lantern search ${repo.split("/").at(-1)}`,
    );
  }
  if (quantization !== undefined) return namedVariant(variants, repo, quantization);
  const fitting = variants.filter(
    ({ bytes }) => memoryBytes === undefined || roughlyFits(bytes, memoryBytes),
  );
  if (fitting.length === 0) {
    const smallest = variants[0]!;
    throw new SourceError(
      `hub: no file of ${repo} fits: the smallest, ${variantName(smallest)}, has ${gigabytes(smallest.bytes)}, and this machine's memory has ${gigabytes(memoryBytes!)}. Choose a smaller model, or name a file to download it anyway: hf:${repo}:${variantName(smallest)}`,
    );
  }
  const small = fitting.find(
    ({ quantization: type, bytes }) => type === "Q8_0" && bytes < smallBytes,
  );
  return small ?? fitting.toSorted((a, b) => rank(a) - rank(b))[0]!;
}

function rank({ quantization }: HubVariant): number {
  const at = preference.indexOf(quantization ?? "");
  return at < 0 ? preference.length : at;
}

function namedVariant(
  variants: readonly HubVariant[],
  repo: string,
  quantization: string,
): HubVariant {
  const wanted = quantization.toUpperCase();
  const exact = variants.filter((variant) => variant.quantization === wanted);
  if (exact.length === 1) return exact[0]!;
  const files = exact.map(({ files: [first] }) => first!.path);
  if (exact.length > 1) {
    throw new UsageError(
      `hub: ${repo} has several files of type ${wanted}: ${files.join(", ")}. Name one: hf:${repo}/${files[0]}`,
    );
  }
  const known = variants.map((variant) => `${variantName(variant)} (${gigabytes(variant.bytes)})`);
  throw new UsageError(`hub: ${repo} has no ${wanted}. It has: ${known.join(", ")}`);
}

/** The name of a variant: its quantization, or its file. */
export function variantName({ quantization, files }: HubVariant): string {
  return quantization ?? files[0]!.path;
}

function gigabytes(bytes: number): string {
  return bytes < 1e9 ? `${(bytes / 1e6).toFixed(0)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}
