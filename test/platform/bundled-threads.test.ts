// Threads of a bundle (test/support/bundled-threads.ts) held against threads that run the sources: the same text.

import { expect, onTestFinished, test } from "vitest";
import { open } from "../../src/index.ts";
import { bundleVariable } from "../support/bundled-threads.ts";
import { tinyFile } from "../support/tiny-file.ts";

test("threads of a bundle and of the sources give the same text", async () => {
  const file = await tinyFile();
  onTestFinished(() => file.remove());
  const text = async () => {
    await using model = await open(file.path);
    return (await model.generate("the cat", { temperature: 0, maxTokens: 8 }).result).text;
  };
  const bundled = await text();
  const { [bundleVariable]: folder } = process.env;
  expect(folder, "a bundle was made before the tests").toBeDefined();
  delete process.env[bundleVariable];
  onTestFinished(() => {
    process.env[bundleVariable] = folder;
  });
  expect(await text()).toBe(bundled);
});
