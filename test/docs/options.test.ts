// An option takes two files: those of docs/inside/add-an-option.md are added to a copy of the sources, which compiles, and the command
// line, the requests of all protocols, settings, presets, Modelfiles, the engine and open() have them.
// Held against: what the document says that each of them takes.

import { afterAll, expect, test } from "vitest";
import { additionsOf, Overlay } from "./overlay.ts";

const overlay = new Overlay(["apps/cli", "apps/server", "apps/sessions", "apps/batch"]);
afterAll(() => overlay.remove());

test("an option is its row, and the code that uses it", () => {
  const files = overlay.add(additionsOf("docs/inside/add-an-option.md"));
  expect(files).toEqual([
    ...["src/options/sampling.ts", "src/engine/sampler.ts"],
    ...["src/options/open.ts", "src/threads/serve-engine.ts"],
  ]);
});

test("the copy compiles", () => {
  expect(
    overlay.compile([
      "src/index.ts",
      "apps/cli/option-flags.ts",
      "apps/server/protocols/ollama/modelfile.ts",
    ]),
  ).toBe("");
});

const program = `
import { Command } from "commander";
import { addRuntimeFlags, addSamplingFlags, generateOptions, openOptions } from "./apps/cli/flags.ts";
import { inFlags } from "./src/options/names.ts";
import { open } from "./src/open.ts";
import { parsePresets } from "./apps/cli/models-preset.ts";
import { parametersText } from "./apps/server/protocols/ollama/modelfile.ts";
import { generationParams } from "./apps/server/generation-settings.ts";
import { anthropicShape, generateOptions as ofFields, samplingShape } from "./apps/server/sampling-fields.ts";
import { settingsSchema } from "./apps/sessions/settings.ts";
import { createSampler, resolveSampling } from "./src/engine/sampler.ts";

const command = addSamplingFlags(new Command("run").exitOverride().configureOutput({ writeErr: () => {} }));
const help = command.helpInformation().replaceAll(/\\s+/g, " ");
const flags = command.parse(["--logit-gap", "2"], { from: "user" }).opts();
const said = (work) => { try { return work(); } catch (error) { return error.message; } };
const chosen = (options) => {
  const sampler = createSampler(resolveSampling({ temperature: 5, topK: 0, topP: 1, minP: 0, seed: 1, ...options }), 4);
  return [...new Set(Array.from({ length: 60 }, () => sampler.sample(Float32Array.of(4, 3.5, 1, 0)).id))].sort();
};
const runtime = addRuntimeFlags(new Command("run"));
const wrong = await open("a.gguf", { called: 7 }).catch(({ message, facts }) => ({ message, facts }));
console.log(JSON.stringify({
  open: {
    help: runtime.helpInformation().replaceAll(/\\s+/g, " ").includes("--called <name> a name for a model whose file has none (default: the file's)"),
    flag: openOptions(runtime.parse(["--called", "Ada"], { from: "user" }).opts()).called,
    preset: parsePresets('[models.a]\\ncalled = "Ada"', "a.toml").models.get("a").flags,
    ...wrong,
    inFlags: inFlags(wrong.message),
  },
  help: help.includes("--logit-gap <x> drop tokens whose logit is more than this below the best one; 0: off (default: 0)"),
  flag: generateOptions(flags),
  refusedFlag: said(() => command.parse(["--logit-gap", "-2"], { from: "user" })),
  field: ofFields({ logit_gap: 2 }, {}, {}),
  refusedField: samplingShape.logit_gap.safeParse(1001).error?.issues[0].message,
  anthropic: "logit_gap" in anthropicShape,
  session: settingsSchema.parse({ logitGap: 2 }),
  preset: parsePresets('[models.a]\\nlogit-gap = 2', "a.toml").models.get("a").preset.sampling,
  modelfile: parametersText({ preset: { sampling: { logitGap: 2 } } }),
  settings: generationParams({ logitGap: 2 }, { endTokens: [] }).logit_gap,
  refused: said(() => resolveSampling({ logitGap: -2 })),
  without: chosen({}),
  with: chosen({ logitGap: 1 }),
}));
`;

test("flag, help, fields, settings, presets, Modelfiles, errors and the sampler have it", () => {
  const said = overlay.program(program);
  expect(said).toMatch(/^\{/);
  expect(JSON.parse(said)).toEqual({
    open: {
      help: true,
      flag: "Ada",
      preset: { called: "Ada" },
      message: "called: got 7, expected text",
      facts: { option: "called", part: "", got: "7", expected: "text" },
      inFlags: "--called: got 7, expected text",
    },
    help: true,
    flag: { logitGap: 2 },
    refusedFlag:
      "error: option '--logit-gap <x>' argument '-2' is invalid. Expected a number of at least 0.",
    field: { logitGap: 2 },
    refusedField: "expected a number from 0 to 1000",
    anthropic: false,
    session: { logitGap: 2 },
    preset: { logitGap: 2 },
    modelfile: "logit_gap 2",
    settings: 2,
    refused: "logitGap: got -2, expected a number of at least 0 (0: off)",
    without: [0, 1, 2, 3],
    with: [0, 1],
  });
});
