// lantern sparsify --order: a model with the neurons first that a text opens most often is the same model. Its perplexity is what the
// original's is, its rows and columns are those of the original in another order, and the openings are counted again by hand.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { orderNeurons, perplexity } from "../../src/index.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";
import { reluFile, reluShape } from "../support/relu-file.ts";
import { tinyGguf } from "../support/tiny-file.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-order-"));
const words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "rain", "fall", "over"];
const text = Array.from({ length: 500 }, (_, i) => words[(i * i + 3 * i) % 11]).join(" ");
const path = (name: string) => join(folder, name);

beforeAll(async () => {
  for (const type of ["f32", "q8_0"]) writeFileSync(path(type), await tinyGguf(reluFile({ type })));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function tensorOf(file: string, name: string): Promise<Float32Array> {
  const model = await openModelFile(
    await nodePlatform.openModelSource({ kind: "path", path: file }),
  );
  const tensor = model.tensors.get(name)!;
  const bytes = new Uint8Array(tensor.byteLength);
  await model.readTensor(tensor, bytes, 0);
  await model.close();
  const values = new Float32Array(tensor.shape.reduce((a, b) => a * b, 1));
  tensor.dtype.dequantize(bytes, 0, values, 0, values.length / tensor.dtype.blockElems);
  return values;
}

const perplexityOf = async (file: string) => {
  const options = { contextSize: 128, chunks: 2, open: { threads: 1, sparse: false } } as const;
  return (await perplexity(file, text, options)).perplexity.value;
};

describe.each([
  ["f32", 1e-6],
  ["q8_0", 5e-3],
] as const)("%s", (type, tolerance) => {
  test("the model is the same, in another order", async () => {
    const output = path(`${type}.ordered.gguf`);
    const { layers, tokens } = await orderNeurons(path(type), text, output, {
      tokens: 300,
      threads: 1,
    });
    expect(tokens).toBe(300);
    expect(layers.map(({ layer }) => layer)).toEqual([0, 1]);
    for (const { open, firstTenth, firstQuarter, firstHalf } of layers) {
      expect(open).toBeGreaterThan(0.01);
      expect(firstTenth).toBeGreaterThan(0.1);
      expect(firstQuarter).toBeGreaterThan(firstTenth);
      expect(firstHalf).toBeGreaterThan(firstQuarter);
      expect(firstHalf).toBeLessThanOrEqual(1);
    }
    const [before, after] = [await perplexityOf(path(type)), await perplexityOf(output)];
    expect(Math.abs(after / before - 1)).toBeLessThan(tolerance);

    const { embed, feedForward } = reluShape;
    const row = (values: Float32Array, at: number) =>
      `${values.subarray(at * embed, (at + 1) * embed)}`;
    const gates = await tensorOf(path(type), "blk.1.ffn_gate.weight");
    const where = new Map(Array.from({ length: feedForward }, (_, i) => [row(gates, i), i]));
    const moved = await tensorOf(output, "blk.1.ffn_gate.weight");
    const order = Array.from({ length: feedForward }, (_, i) => where.get(row(moved, i))!);
    expect([...order].sort((a, b) => a - b)).toEqual([...order.keys()]);
    expect(order).not.toEqual([...order.keys()]);
    const [ups, movedUps] = [
      await tensorOf(path(type), "blk.1.ffn_up.weight"),
      await tensorOf(output, "blk.1.ffn_up.weight"),
    ];
    for (const [to, from] of order.entries()) expect(row(movedUps, to)).toBe(row(ups, from));
    const [downs, movedDowns] = [
      await tensorOf(path(type), "blk.1.ffn_down.weight"),
      await tensorOf(output, "blk.1.ffn_down.weight"),
    ];
    const largest = downs.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const apart = order.flatMap((from, to) =>
      Array.from({ length: embed }, (_, i) =>
        Math.abs(movedDowns[i * feedForward + to]! - downs[i * feedForward + from]!),
      ),
    );
    expect(Math.max(...apart) / largest).toBeLessThanOrEqual(type === "f32" ? 0 : 0.01);
  });
});

test("lantern sparsify --order prints what a share would hold, and refuses what is of predictors", async () => {
  const downloads = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });
  const run = async (...args: string[]) => {
    const terminal = new FakeTerminal();
    terminal.files.set("text.txt", text);
    const shared = [path("f32"), "--corpus", "text.txt", "-o", path("cli.gguf"), "-t", "1"];
    const code = await main(["sparsify", ...shared, "--order", ...args], terminal, downloads);
    return { code, terminal };
  };
  expect((await run("--rank", "64")).terminal.stderr).toContain("--rank is of predictors");
  const { code, terminal } = await run("--tokens", "200");
  expect(code).toBe(0);
  expect(terminal.stdout).toMatch(/layer +above zero +first 10% +first 25% +first 50%/);
  expect(terminal.stderr).toContain("cli.gguf: ");
});

test("a model without ReLU is refused", async () => {
  writeFileSync(path("silu.gguf"), await tinyGguf());
  await expect(orderNeurons(path("silu.gguf"), text, path("none.gguf"))).rejects.toThrow(
    /no feed-forward network of silu.gguf has a ReLU/,
  );
});
