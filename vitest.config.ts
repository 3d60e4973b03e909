import { globSync, readFileSync } from "node:fs";
import { matchesGlob } from "node:path";
import { defineConfig, type ViteUserConfig } from "vitest/config";
import { gpu, long, rest, shared, sharesProcess, slow } from "./test/tiers/tiers.ts";

// `npm test` needs no network, no GPU and no model beyond what npm installs, and takes a few minutes. Tests that read ../shared
// skip, with the reason printed, where that folder is absent. `npm test -- FILE` runs any file.
//
// Starting a process and loading modules takes longer than most files' tests: files that leave their process as it was share one.
const isAsked = process.argv.slice(2).some((argument) => /^(\.\/)?test\//.test(argument));
const later = [...rest, ...long, ...slow, ...gpu];

const files = globSync("test/**/*.test.ts").filter((file) => {
  return isAsked || !later.some((pattern) => matchesGlob(file, pattern));
});
const { together = [], apart = [] } = Object.groupBy(files, (file) =>
  sharesProcess(file, readFileSync(file, "utf8")) ? "together" : "apart",
);

const project = (name: string, isolate: boolean, include: string[]) => {
  return { extends: true as const, test: { name, isolate, include } };
};

const config: ViteUserConfig = defineConfig({
  test: {
    ...shared,
    globalSetup: "test/tiers/bundle.ts",
    setupFiles: ["test/support/bundled-threads.ts"],
    maxWorkers: 3, // two leave an eighth of two cores idle
    projects: [project("together", false, together), project("apart", true, apart)],
  },
});

export default config;
