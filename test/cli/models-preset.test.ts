// The file of --models-preset: what it may say, in TOML and JSON, and errors that name the key.

import { expect, test } from "vitest";
import { parsePresets } from "../../apps/cli/models-preset.ts";

const toml = `
[defaults]
ctx-size = 1024
temp = 0.5

[models.chat]
model = "talk.gguf"
alias = ["gpt-4o", "default"]
threads = 2
top-k = 1
stop = "END"
system = """
Be brief.
Be kind."""
pinned = true
keep-alive = "10m"
load-on-startup = true
`;

test("TOML and JSON say the same", () => {
  const { defaults, models } = parsePresets(toml, "folder/models.toml");
  expect(defaults).toMatchObject({
    flags: { ctxSize: 1024 },
    preset: { sampling: { temperature: 0.5 } },
  });
  const expected = {
    model: "talk.gguf",
    aliases: ["gpt-4o", "default"],
    isLoadedAtStart: true,
    flags: { threads: 2 },
    preset: {
      sampling: { topK: 1, stop: ["END"] },
      system: "Be brief.\nBe kind.",
      isPinned: true,
      keepMs: 600_000,
    },
  };
  expect(models.get("chat")).toEqual(expected);
  const json = JSON.stringify({
    models: {
      chat: {
        ...{
          model: "talk.gguf",
          alias: ["gpt-4o", "default"],
          threads: 2,
          "top-k": 1,
          stop: ["END"],
        },
        ...{ system: "Be brief.\nBe kind.", pinned: true, "keep-alive": 600 },
        "load-on-startup": true,
      },
    },
  });
  expect(parsePresets(json, "models.json").models.get("chat")).toEqual(expected);
});

test.each([
  [
    '[models.a]\nctx-size = "big"',
    'm.toml: models.a.ctx-size: got "big", expected a whole number from 1 to 16777216',
  ],
  ['[models."a b"]\ntop-p = 2', 'm.toml: models."a b".top-p: got 2, expected a number from 0 to 1'],
  [
    "[models.a]\nthread = 2",
    'm.toml: models.a: unknown key "thread". Did you mean threads or threads-draft?',
  ],
  ["[model.a]", 'm.toml: unknown key "model". Did you mean models?'],
  ["[models]\na = 1", "m.toml: models.a: got 1, expected a table of settings"],
  ['[defaults]\nmodel = "x"', 'm.toml: defaults: unknown key "model"'],
  ['[models.a]\ncache-type = "q9"', 'm.toml: models.a.cache-type: got "q9", expected one of f32,'],
  ['[models.a]\nkeep-alive = "soon"', 'm.toml: models.a.keep-alive: got "soon", expected seconds'],
  [
    '[models.a]\n[models.b]\nalias = "a"',
    'm.toml: models.b.alias: got "a", which is also a name of a',
  ],
  ["[models.a]\npinned = 1", "m.toml: models.a.pinned: got 1, expected true or false"],
  ["[models.a\n", "m.toml: line 1: got"],
])("%j is refused", (text, message) => {
  expect(() => parsePresets(text, "dir/m.toml")).toThrow(message);
});
