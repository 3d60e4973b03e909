import { defineConfig, type ViteUserConfig } from "vitest/config";

// `npm run test:models`: what needs a downloaded model or minutes of plain-TypeScript arithmetic.
const config: ViteUserConfig = defineConfig({
  test: {
    include: ["test/**/*.slow.ts"],
    pool: "forks",
    maxWorkers: 1,
    env: { LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1" },
    testTimeout: 1_800_000,
    hookTimeout: 600_000,
  },
});

export default config;
