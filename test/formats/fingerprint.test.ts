// Fingerprints of models: the same for the same weights wherever the file is, another one for others; and none of it costs reads of its own
// where the file was read before.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { modelFingerprint } from "../../apps/cluster/model-fingerprint.ts";
import { LOCAL_SAMPLES, weightsFingerprint, withSamples } from "../../src/formats/fingerprint.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { type ModelInfo, open } from "../../src/index.ts";
import { tinyFile, tinyGguf } from "../support/tiny-file.ts";
import { memorySource } from "./support.ts";

test("a file that was read in pieces gives its samples without another read", async () => {
  const file = await openModelFile(memorySource({ "tiny.gguf": await tinyGguf() }));
  let reads = 0;
  const counted: ModelFile = {
    ...file,
    readTensor: (...args) => {
      reads++;
      return file.readTensor(...args);
    },
  };
  const sampled = withSamples(counted);
  for (const tensor of sampled.tensors.values()) {
    // The middle of a sample is the border of two pieces.
    const half = Math.ceil(tensor.byteLength / 2);
    await sampled.readTensor(tensor, new Uint8Array(tensor.byteLength - half), half);
    await sampled.readTensor(tensor, new Uint8Array(half), 0);
  }
  expect(reads).toBe(2 * file.tensors.size);
  const expected = await weightsFingerprint(file, LOCAL_SAMPLES);
  expect(await weightsFingerprint(sampled, LOCAL_SAMPLES)).toBe(expected);
  expect(reads).toBe(2 * file.tensors.size);
});

/** What open() says of a model. */
async function infoOf(place: string, chatTemplate?: string): Promise<ModelInfo> {
  await using model = await open(place, {
    ...{ threads: 1, tuned: false, contextSize: 64, ...(chatTemplate && { chatTemplate }) },
  });
  return model.info;
}

test("models: the same wherever the file is, others for other weights; a cluster tells chat templates apart, too", async () => {
  const files = [await tinyFile(), await tinyFile({ seed: 2 })];
  const bytes = await tinyGguf();
  let requests = 0;
  const server = createServer(({ headers: { range } }, response) => {
    requests++;
    const [from, to] = /(\d+)-(\d+)/.exec(range!)!.slice(1).map(Number) as [number, number];
    const last = Math.min(to, bytes.length - 1);
    const found = { "Content-Range": `bytes ${from}-${last}/${bytes.length}` };
    response.writeHead(206, found).end(bytes.subarray(from, last + 1));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const { port } = server.address() as AddressInfo;
    const here = await infoOf(files[0]!.path);
    const there = await infoOf(`http://127.0.0.1:${port}/tiny.gguf`);
    const other = await infoOf(files[1]!.path);
    const otherTemplate = await infoOf(files[0]!.path, "chatml");
    expect(requests).toBeGreaterThan(0);
    expect(here.fingerprint).toMatch(/^[0-9a-f]{64}$/);
    expect(there.fingerprint).toBe(here.fingerprint);
    expect(other.fingerprint).not.toBe(here.fingerprint);
    expect(otherTemplate.fingerprint).toBe(here.fingerprint);
    // All that was compared before is the same.
    expect(other).toMatchObject({ parameters: here.parameters, weightType: here.weightType });
    expect(modelFingerprint(there)).toBe(modelFingerprint(here));
    expect(modelFingerprint(other)).not.toBe(modelFingerprint(here));
    expect(modelFingerprint(otherTemplate)).not.toBe(modelFingerprint(here));
  } finally {
    server.close();
    for (const file of files) file.remove();
  }
});
