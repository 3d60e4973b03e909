import { defineConfig, type ViteUserConfig } from "vitest/config";
import { rest, shared } from "./tiers.ts";

// `npm run test:rest`: what `npm test` leaves out. Browsers, servers and other processes wait half of their time, so that
// three files at a time keep two cores busy.
const config: ViteUserConfig = defineConfig({
  test: {
    ...shared,
    maxWorkers: 3,
    include: [...rest],
    exclude: ["**/*.slow.ts", "**/!(*.test).ts"],
  },
});

export default config;
