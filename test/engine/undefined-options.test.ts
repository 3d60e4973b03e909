// Optional options may be undefined, also under TypeScript's exactOptionalPropertyTypes: this file is type-checked so.

import { expect, test } from "vitest";
import type { EmbedOptions, GenerateOptions, OpenOptions } from "../../src/index.ts";

const signal: AbortSignal | undefined = undefined;

test("a signal that is not there", () => {
  const open: OpenOptions = { signal };
  const generate: GenerateOptions = { signal };
  const embed: EmbedOptions = { signal };
  expect([open, generate, embed]).toEqual([{ signal }, { signal }, { signal }]);
});
