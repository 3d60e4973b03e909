import { defineConfig, type ViteUserConfig } from "vitest/config";
import { long, shared } from "./tiers.ts";

// `npm run test:long`: those of the rest that take longest. Browsers, servers and other processes wait half of their time, so that
// three files at a time keep two cores busy.
const config: ViteUserConfig = defineConfig({
  test: {
    ...shared,
    maxWorkers: 3,
    include: [...long],
    exclude: ["**/*.slow.ts", "**/!(*.test).ts"],
  },
});

export default config;
