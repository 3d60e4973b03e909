// The build of the web app: Preact's JSX, two pages (the app, and a tab that computes for a cluster); pages of the app other than the first
// are loaded when they are opened. The output is dist/web, which `lantern serve` serves from memory under a strict content security policy:
// no inline scripts. Scripts that run as Web Workers are in a folder of their own: their policy lets them connect elsewhere.
//
// `npm run dev:web` serves the sources with reloading and proxies requests to a server on port 8080.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin, type UserConfig } from "vite";

/** With the page's own Host: the server refuses pages of other origins. */
const api = { target: "http://127.0.0.1:8080", changeOrigin: false };

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const { version } = JSON.parse(readFileSync(here("../../package.json"), "utf8")) as {
  version: string;
};

/** Lantern's sources in a page, as package.json's "browser" field and the build map them: no modules of Node, and workers by their source. */
const lantern = (): Plugin => ({
  name: "lantern",
  enforce: "pre",
  resolveId(source) {
    return /^(\.\/node|\.\.\/catalog\/resolve)\.ts$/.test(source) ? "\0nothing" : undefined;
  },
  load(id) {
    return id === "\0nothing" ? "export {};" : undefined;
  },
  transform(code, id) {
    if (!id.endsWith("/src/platform/browser.ts")) return undefined;
    return code.replaceAll("../threads/worker.js", "../threads/worker.ts");
  },
});

const config: UserConfig = defineConfig({
  root: here("."),
  define: { LANTERN_VERSION: JSON.stringify(version) },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  css: { postcss: {} }, // else its configuration is searched in the folders above
  plugins: [lantern()],
  worker: {
    format: "es",
    plugins: () => [lantern()],
    rolldownOptions: {
      checks: { ineffectiveDynamicImport: false }, // a rule for faster starts of Node makes no difference here
      output: {
        entryFileNames: "threads/[name]-[hash].js",
        chunkFileNames: "threads/[name]-[hash].js",
      },
    },
  },
  build: {
    outDir: "../../dist/web",
    emptyOutDir: true,
    target: "es2023",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rolldownOptions: {
      // Workers are bundled by a plugin, which takes most of the time.
      onwarn: (warning, warn) => void (warning.code === "PLUGIN_TIMINGS" || warn(warning)),
      input: [here("index.html"), here("worker.html")],
    },
  },
  server: { proxy: { "/lantern": api, "/v1": api, "/health": api, "/metrics": api } },
});

export default config;
