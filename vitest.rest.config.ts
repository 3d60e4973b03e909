import { defineConfig, type ViteUserConfig } from "vitest/config";
import { rest, shared } from "./vitest.tiers.ts";

// `npm run test:rest`: what `npm test` leaves out.
const config: ViteUserConfig = defineConfig({
  test: { ...shared, include: [...rest], exclude: ["**/*.slow.ts", "**/!(*.test).ts"] },
});

export default config;
