import { configDefaults, defineConfig, type ViteUserConfig } from "vitest/config";
import { gpu, long, rest, shared, slow } from "./test/tiers/tiers.ts";

// `npm test` needs no network, no GPU and no model beyond what npm installs, and takes a few minutes. Tests that read ../shared
// skip, with the reason printed, where that folder is absent. `npm test -- FILE` runs any file.
const isAsked = process.argv.slice(2).some((argument) => /^(\.\/)?test\//.test(argument));

const config: ViteUserConfig = defineConfig({
  test: {
    ...shared,
    maxWorkers: 3, // two leave an eighth of two cores idle
    include: ["test/**/*.test.ts"],
    exclude: [...configDefaults.exclude, ...(isAsked ? [] : [...rest, ...long, ...slow, ...gpu])],
  },
});

export default config;
