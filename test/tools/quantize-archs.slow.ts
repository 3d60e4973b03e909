// Files that quantize() and llama-quantize make of a tiny model of every architecture. For every file type: the same type for every
// tensor. For some: the same bytes, metadata and all. LANTERN_LLAMA_CPP names the folder with llama-quantize, which on arm64 has to be
// built with -ffp-contract=off (docs/use/quantize.md); LANTERN_TEST_ARCHS=gemma3,mamba limits the models, LANTERN_TEST_BYTES=0 leaves the bytes out.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { fileTypeNamed, fileTypes } from "../../src/tools/quantize/file-types.ts";
import { lackImportance, planTensors } from "../../src/tools/quantize/plan.ts";
import { hasShared, sharedPath } from "../support/shared.ts";
import { opened, quantized } from "./quantize-files.ts";
import { widened } from "./wide-archs.ts";

const folder = process.env.LANTERN_LLAMA_CPP;
const tool = folder === undefined ? undefined : join(folder, "llama-quantize");
const only = process.env.LANTERN_TEST_ARCHS?.split(",");

/** Types whose files are compared byte for byte. */
const compared: readonly string[] = ["F16", "Q8_0", "Q4_0", "Q4_K_M", "MXFP4_MOE"];
/** More of them for architectures with rules of their own, experts, latent attention or recurrent state. */
const comparedMore: readonly string[] = [
  "BF16",
  "Q5_1",
  "Q2_K",
  "Q5_K_M",
  "Q6_K",
  "IQ4_NL",
  "IQ4_XS",
];
const thorough: readonly string[] = [
  "falcon",
  "bailingmoe3",
  "qwen3moe",
  "gpt-oss",
  "deepseek2",
  "mamba2",
  "lfm2",
  "qwen35",
];

/** Not compared: architectures that Lantern does not know. */
const left: Readonly<Record<string, string>> = {
  deepseek4: "it has a tensor of type I32",
  graniteswitch: "llama.cpp counts one layer more than the file has",
};

const reason =
  tool === undefined || !existsSync(tool)
    ? "LANTERN_LLAMA_CPP is not a folder with llama-quantize"
    : hasShared("archs")
      ? undefined
      : "../shared/archs is not on this machine";

if (reason !== undefined) test.skip(`llama-quantize's files [skipped: ${reason}]`, () => {});
else {
  const temporary = mkdtempSync(join(tmpdir(), "lantern-quantize-"));
  afterAll(() => rmSync(temporary, { recursive: true, force: true }));
  const input = join(temporary, "input.gguf");
  const output = join(temporary, "output.gguf");
  const names = readdirSync(sharedPath("archs"))
    .filter((file) => file.endsWith(".gguf"))
    .map((file) => file.slice(0, -".gguf".length))
    .filter((name) => only?.includes(name) ?? true);
  for (const [name, why] of Object.entries(left)) test.skip(`${name} [skipped: ${why}]`, () => {});

  test.each(names.filter((name) => !Object.hasOwn(left, name)))("%s", async (name) => {
    const narrow = new Uint8Array(readFileSync(sharedPath(`archs/${name}.gguf`)));
    const wide = await widened(await opened(narrow));
    const types = [...compared, ...(thorough.includes(name) ? comparedMore : [])];
    const problems: string[] = [];
    for (const [label, model] of Object.entries({ narrow, wide })) {
      writeFileSync(input, model);
      // Rounding a wide file takes seconds and tries nothing that the narrow one does not.
      const bytes =
        process.env.LANTERN_TEST_BYTES === "0"
          ? []
          : label === "narrow" || thorough.includes(name)
            ? types
            : ["Q4_K_M"];
      const found = [...(await typeDifferences(model)), ...(await byteDifferences(model, bytes))];
      problems.push(...found.map((each) => `${label} ${each}`));
    }
    expect(problems).toEqual([]);
  });

  /** Every tensor's type in every file type, from llama-quantize's dry run. */
  async function typeDifferences(model: Uint8Array<ArrayBuffer>): Promise<string[]> {
    const file = await opened(model);
    const problems: string[] = [];
    for (const fileType of fileTypes) {
      const type = fileType.name;
      const text = run(["--dry-run", input, type]);
      if (isUnfit(text)) continue;
      const plan = planTensors(file, {
        type: fileTypeNamed(type),
        patterns: [],
        pure: false,
        leaveOutput: false,
        allowRequantize: false,
        hasImportance: false,
      });
      const needs = lackImportance(plan, fileType, undefined).length > 0;
      if (needs !== text.includes("will require an imatrix")) {
        problems.push(`${type}: ${needs ? "needs" : "does not need"} an importance matrix here`);
      }
      const theirs = dryRunTypes(text);
      for (const { tensor, target } of plan) {
        const wanted = theirs.get(tensor.name);
        if (target.name !== wanted) {
          problems.push(`${type}: ${tensor.name}: ${target.name}, expected ${wanted}`);
        }
      }
    }
    return problems.slice(0, 12);
  }

  async function byteDifferences(
    model: Uint8Array<ArrayBuffer>,
    types: readonly string[],
  ): Promise<string[]> {
    const problems: string[] = [];
    for (const type of types) {
      if (isUnfit(run([input, output, type, "1"]))) continue;
      const theirs = new Uint8Array(readFileSync(output));
      const ours = await quantized(model, type);
      if (Buffer.compare(ours, theirs) !== 0) {
        problems.push(...(await explained(ours, theirs)).map((each) => `${type}: ${each}`));
      }
    }
    return problems;
  }
}

/** Rows that are no whole blocks of the type or of another one: llama.cpp refuses the file, quantize() writes F16. */
function isUnfit(text: string): boolean {
  return text.includes("no tensor type fallback");
}

function run(args: readonly string[]): string {
  try {
    const options = { encoding: "utf8", timeout: 120_000 } as const;
    return execFileSync("sh", ["-c", '"$0" "$@" 2>&1', tool!, ...args], options);
  } catch (error) {
    const text = String((error as { stdout?: string }).stdout);
    if (isUnfit(text)) return text;
    throw new Error(`llama-quantize ${args.join(" ")}: ${text.slice(-500)}`);
  }
}

/** "[   3/  21] NAME - [...], type = f32, size = 1 MiB -> 0.5 MiB (q8_0)"; without the end the type stays. */
function dryRunTypes(text: string): Map<string, string> {
  const line = /^\[ *\d+\/ *\d+\] (\S+) +- \[[^\]]*\], type = +(\S+), .*?(?:\((\w+)\))?$/gm;
  return new Map(
    Array.from(text.matchAll(line), ([, name, from, to]) => [name!, (to ?? from!).toLowerCase()]),
  );
}

/** The first differences: keys, then types and bytes of tensors. */
async function explained(
  ours: Uint8Array<ArrayBuffer>,
  theirs: Uint8Array<ArrayBuffer>,
): Promise<string[]> {
  const [a, b] = [await opened(ours), await opened(theirs)];
  const found: string[] = [];
  const keys = ({ metadata }: typeof a) =>
    [...metadata.keys()].map((key) => `${key} ${JSON.stringify(metadata.preview(key, 8))}`);
  const [ourKeys, theirKeys] = [keys(a), keys(b)];
  for (const key of theirKeys) if (!ourKeys.includes(key)) found.push(`lacks ${key}`);
  for (const key of ourKeys) if (!theirKeys.includes(key)) found.push(`has ${key}`);
  if (found.length === 0 && ourKeys.join() !== theirKeys.join())
    found.push("keys in another order");
  if ([...a.tensors.keys()].join() !== [...b.tensors.keys()].join())
    found.push("tensors in another order");
  for (const [name, tensor] of b.tensors) {
    const own = a.tensors.get(name);
    if (own?.dtype !== tensor.dtype) {
      found.push(`${name}: ${own?.dtype.name}, expected ${tensor.dtype.name}`);
      continue;
    }
    const [x, y] = [new Uint8Array(tensor.byteLength), new Uint8Array(tensor.byteLength)];
    await a.readTensor(own, x);
    await b.readTensor(tensor, y);
    if (Buffer.compare(x, y) !== 0) found.push(`${name}: other bytes in ${tensor.dtype.name}`);
  }
  return found.length > 0 ? found.slice(0, 6) : ["other bytes, in padding or in the header"];
}
