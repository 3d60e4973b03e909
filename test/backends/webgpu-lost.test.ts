// A GPU whose device is destroyed in the middle of a batch: requests that run, and those that follow.
// Held against: the text of a model that was not lost.

import { afterAll, beforeAll, test } from "vitest";
import { describeGpu } from "../support/gpu.ts";
import { loseInLibrary, loseInServer } from "../support/losing-device.ts";
import { tinyFile } from "../support/tiny-file.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => file.remove());

describeGpu("a lost GPU", () => {
  test("running requests fail, the next one opens the model again", async () => {
    await loseInLibrary(file.path, "webgpu");
  });

  test("the server opens it again by itself", async () => {
    await loseInServer(file.path, "webgpu");
  });
});
