// A model to tune is found as open() finds it: a name of the catalog is not taken for a path.
// Held against: the file that open() takes.

import { expect, test } from "vitest";
import { tune } from "../../src/index.ts";

process.env.LANTERN_CACHE = "/nonexistent/lantern-test-cache"; // whatever this machine has

test("a name of the catalog that is not on this machine: the command that downloads it", async () => {
  const tuning = tune({ model: "tinyllama-chat", mode: "quick", remember: false });
  await expect(tuning).rejects.toThrow(/lantern pull tinyllama-chat/);
});
