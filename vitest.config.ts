import { fileURLToPath } from "node:url";
import { defineConfig, type ViteUserConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Half a minute each. One that begins last would run alone at the end; where nothing ran before, vitest knows no times. */
const longest = [
  "backends/split-models",
  "browser/webgpu",
  "browser/browser",
  "models/golden",
  "backends/webgpu-fused",
  "web/robust",
  "web/access",
  "tools/commands",
  "engine/lifetime",
  "web/quantize",
  "models/tiny-golden",
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification): boolean =>
      longest.some((name) => moduleId.endsWith(`/test/${name}.test.ts`));
    const sorted = await super.sort(files);
    return sorted.toSorted((a, b) => Number(isLong(b)) - Number(isLong(a)));
  }
}

// `npm test` needs no network, no GPU and no model beyond what npm installs. Tests that read ../shared skip, with the
// reason printed, where that folder is absent.
const config: ViteUserConfig = defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 2,
    sequence: { sequencer: LongestFirst },
    env: {
      // No test depends on what this machine was measured at, or measures it unless it is about that.
      LANTERN_NO_LIMIT: "1",
      LANTERN_NO_TUNE: "1",
      // Hundreds of processes and threads load the same modules: they are stripped of types and compiled once.
      // Not in /tmp, where another user could have put something first.
      NODE_COMPILE_CACHE: fileURLToPath(new URL("node_modules/.cache/compile", import.meta.url)),
    },
    testTimeout: 120_000,
    // A poll ends when what it waits for is there; on a busy machine that takes more than the usual second.
    expect: { poll: { timeout: 20_000 } },
    hookTimeout: 120_000,
  },
});

export default config;
