// How the web app is built: Preact's JSX, one entry; pages other than the first are loaded when they are opened. The
// output is dist/web, which `lantern serve` serves from memory under a strict content security policy: no inline
// scripts.
//
// `npm run dev:web` serves the sources with reloading and proxies requests to a server on port 8080.

import { fileURLToPath } from "node:url";
import { defineConfig, type UserConfig } from "vite";

/** With the page's own Host: the server refuses pages of other origins. */
const api = { target: "http://127.0.0.1:8080", changeOrigin: false };

const config: UserConfig = defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../dist/web",
    emptyOutDir: true,
    target: "es2023",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  server: { proxy: { "/lantern": api, "/v1": api, "/health": api, "/metrics": api } },
});

export default config;
