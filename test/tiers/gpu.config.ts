import { defineConfig, type ViteUserConfig } from "vitest/config";
import { gpu, shared } from "./tiers.ts";

// `npm run test:gpu`: kernels, models and pages on a software GPU, minutes of it.
const config: ViteUserConfig = defineConfig({ test: { ...shared, include: [...gpu] } });

export default config;
