import { defineConfig, type ViteUserConfig } from "vitest/config";
import { kernels, shared } from "./tiers.ts";

// `npm run test:kernels`: every way to compute, in every shape, interpreted where this processor cannot run it.
const config: ViteUserConfig = defineConfig({ test: { ...shared, include: [...kernels] } });

export default config;
