// docs/reference/ is what scripts/references.ts writes of commander and of the rows of src/options/.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { references } from "../../scripts/references.ts";

test.each(Object.entries(references))(
  "%s is up to date: node scripts/references.ts writes it",
  async (path, text) => {
    const written = readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");
    expect(written).toBe(await text());
  },
);
