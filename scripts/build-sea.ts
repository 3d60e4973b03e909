// Makes the single-file program: one executable for machines without Node, with Node 26, Lantern and the web app in it.
// The story model is not included: 61 MB that only some users need, downloaded at first use.
//
//     npm run build:sea                                       for this machine: dist-sea/lantern-linux-arm64
//     npm run build:sea -- linux-x64 --node path/to/bin/node  for another platform, from its Node of the same version
//
// It contains the web app, a bundle of Lantern's command line, and one for each kind of thread (src/threads);
// src/platform/node-embedded.ts reads them.

import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { build } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { node: { type: "string" }, out: { type: "string", default: join(root, "dist-sea") } },
});
const here = `${process.platform}-${process.arch}`;
const target = positionals[0] ?? here;
if (target !== here && values.node === undefined) {
  console.error(
    `build-sea: for ${target} on ${here}, name its Node ${process.version} with --node`,
  );
  process.exit(2);
}

const work = join(values.out, "work");
rmSync(work, { recursive: true, force: true });
mkdirSync(work, { recursive: true });

const web = join(work, "web");
await build({
  configFile: join(root, "apps", "web", "vite.config.ts"),
  logLevel: "warn",
  build: { outDir: web },
});

const threads = readdirSync(join(root, "src", "threads")).filter(
  (name) => name.endsWith(".ts") && name !== "worker.ts", // for browsers only
);
await bundle(join(root, "scripts", "sea-main.ts"), "main");
for (const name of threads) {
  await bundle(join(root, "src", "threads", name), `threads/${name.replace(/\.ts$/, "")}`);
}

const assets: Record<string, string> = { "package.json": join(root, "package.json") };
for (const name of threads) {
  const bundled = `threads/${name.replace(/\.ts$/, ".js")}`;
  assets[bundled] = join(work, bundled);
}
for (const entry of readdirSync(web, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile()) continue;
  const file = join(entry.parentPath, entry.name);
  assets[`web/${file.slice(web.length + 1).replaceAll("\\", "/")}`] = file;
}

const output = join(values.out, `lantern-${target}${target.startsWith("win32") ? ".exe" : ""}`);
const config = join(work, "sea.json");
writeFileSync(
  config,
  JSON.stringify({
    main: join(work, "main.js"),
    mainFormat: "module",
    ...(values.node !== undefined && { executable: values.node }),
    output,
    disableExperimentalSEAWarning: true,
    assets,
  }),
);
const { status } = spawnSync(process.execPath, ["--build-sea", config], { stdio: "inherit" });
if (status !== 0) process.exit(status ?? 1);
rmSync(work, { recursive: true });
console.log(`${output}: ${(statSync(output).size / 1e6).toFixed(1)} MB`);

/** Bundles the entry and all of its imports into one file, except Node's own modules and optional packages. */
async function bundle(entry: string, name: string): Promise<void> {
  await build({
    configFile: false,
    root,
    logLevel: "warn",
    ssr: { noExternal: true, external: ["webgpu", "@modelcontextprotocol/sdk"], target: "node" },
    build: {
      ssr: entry,
      outDir: work,
      emptyOutDir: false,
      target: "es2024",
      minify: false,
      rolldownOptions: {
        output: { format: "es", codeSplitting: false, entryFileNames: `${name}.js` },
      },
    },
  });
}
