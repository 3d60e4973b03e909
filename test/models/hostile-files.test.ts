// Hostile headers (hostile.ts) of llama.cpp's own files: every key that an architecture reads with every hostile value, and every
// tensor with every wrong shape, type and value. A share of them, or all with LANTERN_TEST_ALL=1, which takes half an hour.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { LanternError } from "../../src/base/errors.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { memorySource } from "../formats/support.ts";
import { leftOut } from "../support/exhaustive.ts";
import { describeShared, sharedPath } from "../support/shared.ts";
import { archFiles } from "./archs-golden.ts";
import {
  attempt,
  type Base,
  type Change,
  keyChanges,
  keysRead,
  sharedBase,
  tensorChanges,
} from "./hostile.ts";

/** One of so many changes is tried. */
const SAMPLE = leftOut === undefined ? 1 : 97;

const { supported } = archFiles();

describeShared("hostile files", "archs", () => {
  describe("headers", () => {
    test.each(supported.map((name, i) => [name, i] as const))(
      "%s",
      async (name, offset) => {
        const base = await sharedBase(name);
        expect((await attempt(base)).text).toBe("computed");
        const changes = await allChanges(base);
        const bugs: string[] = [];
        for (let i = offset % SAMPLE; i < changes.length; i += SAMPLE) {
          const { bug } = await attempt(base, changes[i]!);
          if (bug !== undefined) bugs.push(`${changes[i]!.what}: ${bug}`);
        }
        expect(bugs).toEqual([]);
      },
      600_000,
    );
  });

  test.each(supported)("%s: cut off anywhere", async (name) => {
    const whole = new Uint8Array(readFileSync(sharedPath(`archs/${name}.gguf`)));
    for (let i = 0; i < 16; i++) {
      const source = memorySource({
        "tiny.gguf": whole.subarray(0, Math.floor((whole.length * i) / 16)),
      });
      await expect(openModelFile(source)).rejects.toBeInstanceOf(LanternError);
    }
  });
});

async function allChanges(base: Base): Promise<Change[]> {
  const keys = await keysRead(base);
  const tensors = [...base.tensors.keys()].filter((name) => !/^blk\.([2-9]|\d\d)/.test(name));
  return [
    ...keys.flatMap((key) => [...keyChanges(base, key)]),
    ...tensors.flatMap((tensor) => [...tensorChanges(base, tensor)]),
  ];
}
