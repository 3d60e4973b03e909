import { defineConfig, type ViteUserConfig } from "vitest/config";
import { shared, slow } from "./tiers.ts";

// `npm run test:slow`: what takes long and is seldom news, such as every kernel in every shape.
const config: ViteUserConfig = defineConfig({ test: { ...shared, include: [...slow] } });

export default config;
