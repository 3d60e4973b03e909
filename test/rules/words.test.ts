// What people read: sentences that were found odd stay away, and no message at the command line or in the app names an
// option of the library, which its reader does not have. A sentence that is odd in another way belongs on the list, too.

import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { inFlags, inPageWords } from "../../src/options/names.ts";
import { programFolders, sourceFiles, tokenize } from "./scan.ts";

const odd: readonly RegExp[] = [
  /as far as the memory goes/i,
  /\b(bandwidth|arithmetic|memory|cache) binds\b|\bis what binds\b/i,
  /\bas they do\b/i,
  /already loses twice/i,
  /there is no way back/i,
  /for what there is/i,
  /foresees?\b/i,
  /allows it\b/i,
  /anybody may ask/i,
  /twice leaves/i,
  /\bmeasures? it anew\b/i,
];

/** Options of the library, and calls: their readers are programmers. */
const ofLibrary =
  /\b(contextSize|kvType|gpuLayers|cacheTokens|chatTemplate|memoryBytes|draftTokens|maxTokens|logitBias|saveBase)\b|\b(perplexity|limits|quantize|convert|open|generate)\(\)|\breplace: true\b/;

/** Strings of source files that are sentences: with a space, and not of SQL or shaders. */
function sentences(...folders: string[]): { at: string; text: string }[] {
  return sourceFiles(...folders).flatMap(({ path, text }) =>
    tokenize(text)
      .filter(({ kind }) => kind === "string" || kind === "template")
      .filter((token) => /[a-z] /i.test(token.text))
      .map((token) => ({ at: `${path}:${token.line}`, text: token.text.replaceAll("\\`", "`") })),
  );
}

/** The text of pages is not in strings only. */
function pages(): { at: string; text: string }[] {
  const folder = new URL("../../apps/web/src/", import.meta.url);
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".tsx"))
    .map((file) => ({
      at: `apps/web/src/${file}`,
      text: readFileSync(new URL(file, folder), "utf8").replaceAll(/^\s*\/\/.*$|\/\*.*?\*\//gm, ""),
    }));
}

function documents(): { at: string; text: string }[] {
  const root = new URL("../../", import.meta.url);
  const docs = readdirSync(new URL("docs/", root), {
    recursive: true,
    encoding: "utf8",
  }).filter((file) => file.endsWith(".md"));
  return ["README.md", ...docs.map((file) => `docs/${file}`)].map((at) => ({
    at,
    text: readFileSync(new URL(at, root), "utf8").replaceAll(/\s+/g, " "),
  }));
}

const found = (texts: readonly { at: string; text: string }[], pattern: RegExp): string[] =>
  texts.filter(({ text }) => pattern.test(text)).map(({ at }) => `${at}: ${pattern}`);

test("odd sentences stay away", () => {
  const all = [...sentences(...programFolders, "apps/web/src"), ...pages(), ...documents()];
  expect(odd.flatMap((pattern) => found(all, pattern))).toEqual([]);
});

test("the command line names flags: in its own sentences, and in those of the library that it shows", () => {
  expect(found(sentences("apps/cli"), ofLibrary)).toEqual([]);
  const shown = sentences(...programFolders).map(({ at, text }) => ({ at, text: inFlags(text) }));
  expect(found(shown, ofLibrary)).toEqual([]);
});

test("the app and the server name fields and labels, also in the library's sentences", () => {
  expect(found(sentences("apps/server", "apps/web/src"), ofLibrary)).toEqual([]);
  const shown = sentences(...programFolders).map(({ at, text }) => ({
    at,
    text: inPageWords(text),
  }));
  expect(found(shown, ofLibrary)).toEqual([]);
});

test.each([
  [
    "the prompt has 9 tokens, but the context holds 4, answer included. Shorten it, or use a larger contextSize (trained for 2048)",
    "the prompt has 9 tokens, but the context holds 4, answer included. Shorten it, or use a larger -c (trained for 2048)",
  ],
  [
    "perplexity(): the text is too short: give a smaller window (contextSize) of at most 4",
    "perplexity: the text is too short: give a smaller window (-c) of at most 4",
  ],
  [
    "threads: got 0, expected a whole number above 0",
    "--threads: got 0, expected a whole number above 0",
  ],
  [
    'output: "a.gguf" exists already. Choose another name, or `replace: true`',
    'output: "a.gguf" exists already. Choose another name, or --force',
  ],
  [
    '12 of its 22 layers would fit: use `gpuLayers: 12` or `gpuLayers: "auto"`',
    "12 of its 22 layers would fit: use --gpu-layers 12 or --gpu-layers auto",
  ],
])("%s", (library, commandLine) => {
  expect(inFlags(library)).toBe(commandLine);
});

/** Words that were replaced by those of the field: what is written on the right is what to say. */
const retired: readonly [RegExp, string][] = [
  [/\bmatrix products?\b/i, "matmul"],
  [/\btile registers?\b/i, "AMX tile"],
  [/\btiles? of (rows|weights)\b/i, "row panel"],
  [/\bmeeting of all threads\b/i, "barrier"],
  [/\b(StepPhase|StepLayout|stepMs|graph\/step\.ts)\b/, "batch"],
  [/\b(ProductBench|LaneProduct|productGraph)\b/, "matmul, dot"],
  [/\b(TILE_ROWS|packTile|FloatTiles)\b/, "row panel"],
  [/\b(emitCodes|emitMinimums|SignedCodes|pack-codes)\b/, "quants, mins"],
  [/\b(NativeLevel|nativeLevel|X64Level)\b/, "isa"],
  [/\b(planLot|openPlace)\b/, "chunk, sequence"],
  [/\b(MadeModels?|madeStore|made-models|made models)\b/, "derived models"],
  [/\b(NonsenseError|isNonsense)\b|nonsense\.ts/, "non-finite"],
  [/\bbreathe\b/, "yieldThread"],
  [/\b(Context|State|Group|Pair)Room\b|\b(check|has|even)Room\b/, "capacity"],
  [
    /\b(SeveralShape|SeveralDot|matmul-few|matmul-several|attention-many)\b/,
    "gemv, small batch, prefill",
  ],
  [/\b(flight|touch|teams)\.ts\b|\btouch(Cache)?Text\b|\bTEAM\b/, "lookahead, prefetch, subgroup"],
  [/\bovercome\b/, "widenAndRecompute"],
  [/\bspeed of light\b/i, "roofline or limit, except in the slogan of README.md"],
];

test("one word for one thing: retired words stay away", () => {
  const texts = [
    ...sourceFiles(...programFolders, "bench", "scripts").map(({ path, text }) => ({
      at: path,
      text,
    })),
    ...pages(),
    ...documents().filter(({ at }) => at !== "README.md"),
  ];
  const used = retired.flatMap(([pattern, say]) =>
    found(texts, pattern).map((where) => `${where}: say ${say}`),
  );
  expect(used.join("\n")).toBe("");
});
