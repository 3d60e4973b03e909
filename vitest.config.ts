import { tmpdir } from "node:os";
import { join } from "node:path";
import { defineConfig, type ViteUserConfig } from "vitest/config";

// `npm test` needs no network, no GPU and no model beyond what npm installs. Tests that read ../shared skip, with the
// reason printed, where that folder is absent.
const config: ViteUserConfig = defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 2,
    env: {
      // No test depends on what this machine was measured at, or measures it unless it is about that.
      LANTERN_NO_LIMIT: "1",
      LANTERN_NO_TUNE: "1",
      // Hundreds of processes and threads load the same modules: they are stripped of types and compiled once.
      NODE_COMPILE_CACHE: join(tmpdir(), "node-compile-cache"),
    },
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
});

export default config;
