// The documents stay true: every path and every section they name exists, and the examples of docs/inside/add-a-*.md compile under the project's
// own flags and do what their text says.

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { f32ToF16 } from "../../src/base/half.ts";
import type { DType } from "../../src/dtypes/dtype.ts";
import { computeLogits } from "../../src/engine/compute-logits.ts";
import type { Arch } from "../../src/models/arch.ts";
import { registerArch } from "../../src/models/table.ts";
import { firstDifference } from "../conformance/run-case.ts";
import { cases } from "../conformance/table.ts";
import { examples, loadExample, scratchFolder, writeExample } from "../support/doc-examples.ts";
import { tinyEngine } from "../support/tiny-engine.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const scratch = scratchFolder();

const documents: string[] = [
  ...readdirSync(root).filter((file) => file.endsWith(".md")),
  ...readdirSync(join(root, "docs"), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".md"))
    .map((file) => `docs/${file}`),
  ...["src", "apps"].flatMap((top) =>
    readdirSync(join(root, top), { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith("README.md"))
      .map((file) => `${top}/${file}`),
  ),
];

test("every folder of src and apps has a README", () => {
  const folders = ["src", "apps"].flatMap((top) =>
    readdirSync(join(root, top), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => `${top}/${entry.name}/README.md`),
  );
  expect(folders.filter((path) => !documents.includes(path))).toEqual([]);
});

test.each(documents)("%s names only files that exist", (document) => {
  const text = readFileSync(join(root, document), "utf8");
  const links = [...text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, link]) =>
    resolve(root, dirname(document), link!),
  );
  const quoted = [...text.matchAll(/`((?:src|apps|test|docs|scripts|bin|\.ci)\/[\w./-]*)`/g)]
    .map(([, path]) => path!)
    .filter((path) => !(path in examples))
    .map((path) => resolve(root, path));
  expect([...links, ...quoted].filter((path) => !existsSync(path))).toEqual([]);
});

/** Sections of a document as links name them: by GitHub's rule, or by an <a id>. */
function sections(document: string): string[] {
  const text = readFileSync(document, "utf8").replaceAll(/^```[\s\S]*?^```/gm, "");
  const titles = [...text.matchAll(/^#+ (.+)$/gm)].map(([, title]) =>
    title!
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-"),
  );
  return [...titles, ...[...text.matchAll(/<a id="([^"]+)">/g)].map(([, id]) => id!)];
}

test.each(documents)("%s links to sections that exist", (document) => {
  const text = readFileSync(join(root, document), "utf8");
  const dead = [...text.matchAll(/\]\((?!https?:)([^)#]*)#([^)]+)/g)].filter(([, link, anchor]) => {
    const path = link === "" ? join(root, document) : resolve(root, dirname(document), link!);
    return path.endsWith(".md") && !sections(path).includes(anchor!);
  });
  expect(dead.map(([all]) => all)).toEqual([]);
});

test("every guide of docs has at most 200 lines, and is in the map", () => {
  const guides = documents.filter((path) => /^docs\/(use|library|inside)\//.test(path));
  const long = guides.filter(
    (path) => readFileSync(join(root, path), "utf8").split("\n").length > 201,
  );
  expect(long).toEqual([]);
  const map = readFileSync(join(root, "docs/README.md"), "utf8");
  expect(guides.filter((path) => !map.includes(`](${path.slice("docs/".length)}`))).toEqual([]);
});

test("the line that multiplies Q4_0 is where docs/README.md says", () => {
  const map = readFileSync(join(root, "docs/README.md"), "utf8");
  const line = /`(k\.update\(.+?)`/.exec(map)![1]!;
  expect(readFileSync(join(root, "src/kernels/ops/matmul/dot4.ts"), "utf8")).toContain(line);
});

describe("the examples", () => {
  test("compile as written", () => {
    const files = ["src/dtypes/q1_0.ts", "src/models/gptj.ts"].map(writeExample);
    const config = {
      extends: join(root, "tsconfig.json"),
      compilerOptions: {
        rewriteRelativeImportExtensions: false, // they import by absolute path, from elsewhere
        typeRoots: [join(root, "node_modules/@types")],
      },
      include: files,
    };
    writeFileSync(join(scratch, "tsconfig.json"), JSON.stringify(config));
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    let said = "";
    try {
      execFileSync(process.execPath, [tsc, "-p", scratch], { encoding: "utf8" });
    } catch (error) {
      said = (error as { stdout: string }).stdout;
    }
    expect(said).toBe("");
  });

  test("q1_0 reads and writes signs", async () => {
    const { q1_0 } = (await loadExample("src/dtypes/q1_0.ts")) as { q1_0: DType };
    const block = new Uint8Array(18);
    new DataView(block.buffer).setUint16(0, f32ToF16(0.75), true);
    block[2] = 0b0000_0101;
    const values = new Float32Array(128);
    q1_0.dequantize(block, 0, values, 0, 1);
    expect([...values.subarray(0, 4)]).toEqual([0.75, -0.75, 0.75, -0.75]);
    const again = new Uint8Array(18).fill(0xff);
    q1_0.quantize!(values, 0, again, 0, 1);
    expect(again).toEqual(block);
  });

  test("gptj runs on random weights", async () => {
    const { gptj } = (await loadExample("src/models/gptj.ts")) as { gptj: Arch };
    registerArch(gptj);
    const engine = await tinyEngine({ architecture: "gptj" });
    const control = { aborted: false, yieldThread: async () => {}, now: () => 0 };
    const { positions } = await computeLogits(engine, [1, 2, 3], { top: 1, greedy: 0 }, control);
    expect(positions.every(({ norm }) => Number.isFinite(norm) && norm > 0)).toBe(true);
    engine.dispose();
  });

  test("counting computes what the reference computes, and counts", async () => {
    const { CountingBackend } = (await loadExample("src/backends/counting/counting.ts")) as {
      CountingBackend: new (inner: Backend) => Backend & { counts: Map<string, number> };
    };
    const backend = new CountingBackend(new ReferenceBackend());
    const model = cases.find(({ name }) => name === "model llama")!;
    expect(await firstDifference(backend, model.make(), model, model.batches)).toBeUndefined();
    const matmuls = model.make().graph.nodes.filter(({ op }) => op === "matmul").length;
    expect(backend.counts.get("matmul")).toBe(matmuls * model.batches.length);
    backend.dispose();
  });
});
