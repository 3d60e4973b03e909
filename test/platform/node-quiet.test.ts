// What native libraries write by themselves: kept from standard error while they are asked, and no longer than that; and
// the places in Dawn's own source, which are nobody's business.

import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { withoutBuildPaths } from "../../src/backends/webgpu/device.ts";
import { loadFfi } from "../../src/platform/node-native.ts";
import { skippedFor } from "../support/skips.ts";

const file = new URL("../../src/platform/node-quiet.ts", import.meta.url).href;
const script = `
  import { writeSync } from "node:fs";
  import { withoutNativeErrors } from ${JSON.stringify(file)};
  writeSync(2, "before ");
  const answer = withoutNativeErrors(() => writeSync(2, "meanwhile ") && 7);
  writeSync(2, "after " + answer);
  try { withoutNativeErrors(() => { throw new Error("!"); }); } catch { writeSync(2, " caught"); }
`;

/** The same in a worker. */
const inWorker = `
  import { Worker } from "node:worker_threads";
  new Worker(new URL("data:text/javascript," + encodeURIComponent(${JSON.stringify(script)})));
`;

function errors(env: Record<string, string>, source = script): string {
  const args = ["--input-type=module", "-e", source];
  return spawnSync(process.execPath, args, { encoding: "utf8", env: { ...process.env, ...env } })
    .stderr;
}

const canMute = process.platform === "linux" && loadFfi() !== undefined;
const mute = skippedFor("needs Linux and node:ffi", !canMute);

test.skipIf(!canMute)(
  `standard error leads nowhere meanwhile, and is back afterwards${mute}`,
  () => {
    expect(errors({})).toBe("before after 7 caught");
  },
);

test.skipIf(!canMute)(`in a worker, too, without a warning of Node's${mute}`, () => {
  expect(errors({}, inWorker)).toBe("before after 7 caught");
});

test("LANTERN_GPU_LOG shows everything", () => {
  expect(errors({ LANTERN_GPU_LOG: "1" })).toBe("before meanwhile after 7 caught");
});

test("a message of Dawn's names no place of its own source", () => {
  const message = `Binding size is zero.
 - While validating entries[0] against { binding: 0 }
    at ValidateBufferBinding (/builds/dawn/src/dawn/native/BindGroup.cpp:98)
 - While calling [Device].CreateBindGroup().
`;
  expect(withoutBuildPaths(message)).toBe(
    "Binding size is zero. - While validating entries[0] against { binding: 0 } - While calling [Device].CreateBindGroup().",
  );
});
