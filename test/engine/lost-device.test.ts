// A device that is lost in the middle of a batch, here one that only pretends to be: test/backends/webgpu-lost.test.ts has a GPU's.

import { afterAll, beforeAll, test } from "vitest";
import { fillInLibrary, loseInLibrary, loseInServer } from "../support/losing-device.ts";
import { tinyFile } from "../support/tiny-file.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => file.remove());

test("running requests fail, the next one opens the model again", async () => {
  await loseInLibrary(file.path, "losing");
});

test("the server opens it again by itself", async () => {
  await loseInServer(file.path, "losing");
});

test("without memory in the middle of an answer: it goes on with fewer layers", async () => {
  await fillInLibrary(file.path, "full");
});
