// Writes a GGUF file of a real model's shape with made-up weights (synthetic-model.ts), for benchmarks:
//
//   node scripts/make-model.ts SHAPE TYPE OUT.gguf
//   node scripts/make-model.ts llama-1b q4_0 ~/models/llama-1b-q4_0.gguf
//
// Matrices get TYPE, or the type that is part of the shape (MXFP4 experts of gpt-oss); tensors that llama.cpp's
// quantizer leaves alone (norms, biases, routers) are F32. If a row is not a multiple of the type's block, the tensor
// gets the type that llama.cpp's quantizer would use, and the script says so. The file gets its name only when it is
// complete.

import { open, rename, rm, statfs } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { ProgressBar } from "../apps/cli/progress.ts";
import { bytesText, durationText } from "../apps/cli/text.ts";
import { LanternError, SourceError, UsageError } from "../src/base/errors.ts";
import { allDTypes } from "../src/dtypes/table.ts";
import { writeGguf } from "../src/formats/gguf/writer.ts";
import { nodeTerminal, type Terminal } from "../src/platform/node-cli.ts";
import { type SyntheticModel, syntheticModel } from "./synthetic-model.ts";
import { shapes } from "./synthetic-shapes.ts";

/** Room for the header (the vocabulary, mostly) and the padding between tensors. */
const headerBytes = 16e6;

/** Bytes collected before they are written to disk. */
const bufferBytes = 8 << 20;

export async function writeModel(
  model: SyntheticModel,
  path: string,
  onProgress: (written: number, total: number) => void = () => {},
): Promise<number> {
  await checkSpace(model.weightBytes + headerBytes, path);
  const part = `${path}.part`;
  const handle = await open(part, "w").catch((error: Error) => {
    throw new SourceError(`make-model: cannot write "${part}": ${error.message}`, { cause: error });
  });
  try {
    const buffer = new Uint8Array(bufferBytes);
    let held = 0;
    let written = 0;
    const flush = async (): Promise<void> => {
      for (let done = 0; done < held; ) {
        done += (await handle.write(buffer, done, held - done)).bytesWritten;
      }
      written += held;
      held = 0;
      onProgress(Math.min(written, model.weightBytes), model.weightBytes);
    };
    const write = async (bytes: Uint8Array): Promise<void> => {
      for (let done = 0; done < bytes.length; ) {
        const count = Math.min(bytes.length - done, bufferBytes - held);
        buffer.set(bytes.subarray(done, done + count), held);
        held += count;
        done += count;
        if (held === bufferBytes) await flush();
      }
    };
    await writeGguf({ write }, model.metadata, model.tensors);
    await flush();
    await handle.close();
    await rename(part, path);
    return written;
  } catch (error) {
    await handle.close().catch(() => {});
    await rm(part, { force: true });
    throw error;
  }
}

async function checkSpace(needed: number, path: string): Promise<void> {
  const folder = dirname(resolve(path));
  const facts = await statfs(folder).catch((error: Error) => {
    throw new SourceError(
      `make-model: cannot write to the folder "${folder}": ${error.message}. Make it first`,
      { cause: error },
    );
  });
  const free = facts.bavail * facts.bsize;
  if (free >= needed) return;
  throw new SourceError(
    `make-model: "${path}" needs ${bytesText(needed)}, but ${folder} has ${bytesText(free)} free. Name a file on another disk, or take a smaller shape or type`,
  );
}

async function main(args: readonly string[], terminal: Terminal): Promise<number> {
  const [shape, type, path, ...more] = args;
  try {
    if (shape === undefined || type === undefined || path === undefined || more.length > 0) {
      throw new UsageError(usage());
    }
    const model = syntheticModel(shape, type);
    for (const note of model.notes) terminal.err(`${note}\n`);
    const started = terminal.now();
    const bar = new ProgressBar(terminal, { label: model.name, plainLines: true });
    const bytes = await writeModel(model, path, (written, total) =>
      bar.update(written, total),
    ).finally(() => bar.done());
    const seconds = durationText((terminal.now() - started) / 1000);
    terminal.err(`${path}: ${bytesText(bytes)}, ${model.tensors.length} tensors, ${seconds}\n`);
    return 0;
  } catch (error) {
    if (!(error instanceof LanternError)) throw error;
    terminal.err(`${error.message}\n`);
    return error instanceof UsageError ? 2 : 1;
  }
}

function usage(): string {
  const types = allDTypes().map(({ name }) => name);
  return [
    "usage: node scripts/make-model.ts SHAPE TYPE OUT.gguf",
    `  SHAPE: ${Object.keys(shapes).join(", ")}`,
    `  TYPE:  ${types.join(", ")}`,
  ].join("\n");
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2), nodeTerminal());
