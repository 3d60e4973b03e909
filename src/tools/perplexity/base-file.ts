// Files of base distributions, in the format of llama.cpp's perplexity tool, so that each engine can use the other's
// files. All numbers are little-endian:
//
//   "_logits_"                        8 bytes
//   window, vocabulary, windows       int32 each
//   tokens                            int32 [windows, window], as tokenized: without BOS replacing the first
//   rows                              uint16 [windows, scored, logprobRowLength(vocabulary)]
//
// The file does not name its model; only the vocabulary's size and the tokens can be checked.

import { FormatError } from "../../base/errors.ts";
import { logprobRowLength } from "../../engine/logprob-rows.ts";
import type { ByteSource } from "../../platform/platform.ts";

const MAGIC = "_logits_";
const HEAD_BYTES = 20;
/** With fewer tokens no half is left to score. */
export const SMALLEST_WINDOW = 4;

export interface BaseShape {
  /** Tokens of a window. */
  window: number;
  vocabSize: number;
  windows: number;
}

export interface BaseFile extends BaseShape {
  readonly name: string;
  /** [windows x window] */
  readonly tokens: Int32Array;
  /** Distributions of one window: [scored, logprobRowLength(vocabSize)]. */
  readRows(window: number): Promise<Uint16Array<ArrayBuffer>>;
  close(): Promise<void>;
}

/** The sink that a file is written to, from start to end. */
export interface BaseSink {
  write(bytes: Uint8Array): Promise<void>;
}

/** The scored positions of a window: the second half, without the last one, which has no next token. */
export function scoredPositions(window: number): { from: number; count: number } {
  const from = Math.floor(window / 2);
  return { from, count: window - 1 - from };
}

/** Size of a whole file. */
export function baseFileBytes({ window, vocabSize, windows }: BaseShape): number {
  const { count } = scoredPositions(window);
  return HEAD_BYTES + windows * (4 * window + 2 * count * logprobRowLength(vocabSize));
}

/** The start of a file: rows follow, window by window. */
export function baseFileHead(
  { window, vocabSize, windows }: BaseShape,
  tokens: readonly number[], // [windows x window]
): Uint8Array {
  const bytes = new Uint8Array(HEAD_BYTES + 4 * tokens.length);
  new TextEncoder().encodeInto(MAGIC, bytes);
  const view = new DataView(bytes.buffer);
  for (const [at, value] of [window, vocabSize, windows, ...tokens].entries()) {
    view.setInt32(MAGIC.length + 4 * at, value, true);
  }
  return bytes;
}

/** Opens a file of base distributions and checks that it has the `wanted` windows. */
export async function openBaseFile(
  source: ByteSource,
  wanted: number = Number.POSITIVE_INFINITY,
): Promise<BaseFile> {
  const shape = await readShape(source);
  const windows = Math.min(wanted, shape.windows);
  const rowsAt = HEAD_BYTES + 4 * shape.window * shape.windows;
  const { count } = scoredPositions(shape.window);
  const windowBytes = 2 * count * logprobRowLength(shape.vocabSize);
  const complete = Math.max(0, Math.floor((source.size - rowsAt) / windowBytes));
  if (complete < windows) {
    const advice = complete > 0 ? `use these (--chunks ${complete}), or ` : "";
    throw new FormatError("base file", {
      file: source.name,
      field: "windows",
      got: complete,
      expected: `${windows} of ${shape.window} tokens, but the file ends early: ${advice}save the base again`,
    });
  }
  const tokens = new Int32Array(shape.window * windows);
  await source.readInto(HEAD_BYTES, new Uint8Array(tokens.buffer));
  checkTokens(source.name, tokens, shape.vocabSize);
  return {
    ...shape,
    name: source.name,
    windows,
    tokens,
    readRows: async (window) => {
      const rows = new Uint16Array(windowBytes / 2);
      await source.readInto(rowsAt + window * windowBytes, new Uint8Array(rows.buffer));
      return rows;
    },
    close: () => source.close(),
  };
}

async function readShape(source: ByteSource): Promise<BaseShape> {
  const head = await source.read(0, Math.min(HEAD_BYTES, source.size));
  const magic = new TextDecoder("latin1").decode(head.subarray(0, MAGIC.length));
  if (magic !== MAGIC || head.length < HEAD_BYTES) {
    throw new FormatError("base file", {
      file: source.name,
      field: "beginning",
      got: magic,
      expected: `"${MAGIC}" and three numbers: make one with --save-base, or with llama-perplexity --save-all-logits`,
    });
  }
  const view = new DataView(head.buffer, head.byteOffset + MAGIC.length);
  const [window, vocabSize, windows] = [0, 4, 8].map((at) => view.getInt32(at, true)) as [
    number,
    number,
    number,
  ];
  const limit = source.size / 4; // every token of every window takes four bytes
  if (window < SMALLEST_WINDOW || vocabSize < 1 || windows < 1 || window * windows > limit) {
    throw new FormatError("base file", {
      file: source.name,
      field: "tokens of a window, vocabulary, windows",
      got: [window, vocabSize, windows].join(", "),
      expected: `numbers above ${SMALLEST_WINDOW - 1}, 0 and 0 that fit in ${source.size} bytes`,
    });
  }
  return { window, vocabSize, windows };
}

function checkTokens(name: string, tokens: Int32Array, vocabSize: number): void {
  const at = tokens.findIndex((id) => id < 0 || id >= vocabSize);
  if (at < 0) return;
  throw new FormatError("base file", {
    file: name,
    field: `token ${at}`,
    got: tokens[at]!,
    expected: `an id of its vocabulary (0 to ${vocabSize - 1})`,
  });
}
