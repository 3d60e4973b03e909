// Before a tier runs: a bundle of the present sources, whose threads the tests start (test/support/bundled-threads.ts). Loading
// a thousand modules in each engine thread was most of what the tests cost.

import { dirname, join } from "node:path";
import type { TestProject } from "vitest/node";
import { bundleVariable } from "../support/bundled-threads.ts";

const bundles = new URL("../../scripts/checkout-bundle.js", import.meta.url).href;

export async function setup({ vitest }: TestProject): Promise<void> {
  // A debugger needs the sources; and who watches changes them while the tests run.
  const wantsSources =
    vitest.config.watch || process.execArgv.some((flag) => /^--inspect/.test(flag));
  if (wantsSources || process.env[bundleVariable] !== undefined) return;
  const { bundledMain } = await import(bundles); // plain JavaScript
  const main: string | undefined = bundledMain(true);
  if (main) process.env[bundleVariable] = join(dirname(dirname(main)), "start");
  else
    console.warn(
      "no bundle could be made: threads load the sources, which takes many times as long",
    );
}
