// The output of "lantern embed": vectors in the formats of llama.cpp's llama-embedding, under their names.

import { byName } from "../../src/base/by-name.ts";
import {
  cosineSimilarity,
  type Embedding,
  type EmbeddingInfo,
  type Pooling,
} from "../../src/index.ts";
import { tableText } from "./text.ts";

/** The embedded texts, and their options. */
export interface EmbeddedTexts {
  readonly model: string;
  readonly texts: readonly string[];
  readonly found: readonly Embedding[];
  readonly pooling: Pooling;
  /** Values of a vector, as printed. */
  readonly size: number;
  readonly labels: EmbeddingInfo["labels"];
  /** --embd-normalize: with 0, values are whole numbers. */
  readonly norm: number;
}

/** Values of several vectors that are shown: of each the first ones, of tokens the first and the last. */
const shownOfText = 16;
const shownOfToken = 3;
/** Letters of a text beside its row of the matrix. */
const labelLength = 24;

/** The formats by llama.cpp's names; "" is for reading. */
export const embeddingFormats: Readonly<Record<string, (all: EmbeddedTexts) => string>> = byName({
  "": readable,
  array: (all) => `[${rowsOf(all).map(listText(all)).join(",")}]\n`,
  json: (all) => `${JSON.stringify(openaiList(all))}\n`,
  "json+": (all) => {
    const list = openaiList(all);
    const matrix = hasMatrix(all) ? { cosineSimilarity: matrixOf(rowsOf(all)) } : {};
    return `${JSON.stringify({ ...list, ...matrix })}\n`;
  },
  raw: (all) =>
    rowsOf(all)
      .map((row) => `${numbersOf(all, row).join(" ")}\n`)
      .join(""),
});

/** One vector for each text, or for each token of all of them. */
function rowsOf({ found, pooling, size }: EmbeddedTexts): Float32Array[] {
  if (pooling !== "none") return found.map(({ vector }) => vector);
  return found.flatMap(({ vector }) =>
    Array.from({ length: vector.length / size }, (_, at) =>
      vector.subarray(at * size, (at + 1) * size),
    ),
  );
}

/** Nine digits are enough to restore every float32. */
function numbersOf({ norm }: EmbeddedTexts, row: Float32Array): number[] {
  return Array.from(row, (value) =>
    norm === 0 ? Math.round(value) : Number(value.toPrecision(9)),
  );
}

const listText =
  (all: EmbeddedTexts) =>
  (row: Float32Array): string =>
    JSON.stringify(numbersOf(all, row));

/** The response format of OpenAI's /v1/embeddings. */
function openaiList(all: EmbeddedTexts): object {
  const tokens = all.found.reduce((sum, one) => sum + one.tokens, 0);
  const data = rowsOf(all).map((row, index) => ({
    object: "embedding",
    index,
    embedding: numbersOf(all, row),
  }));
  const usage = { prompt_tokens: tokens, total_tokens: tokens };
  return { object: "list", data, model: all.model, usage };
}

function readable(all: EmbeddedTexts): string {
  if (all.pooling === "rank") return scoresText(all);
  const rows = rowsOf(all);
  const digits = all.norm === 0 ? 0 : 6;
  const values = (row: Float32Array): string =>
    Array.from(row, (value) => value.toFixed(digits).padStart(digits === 0 ? 6 : 9)).join(" ");
  const lines = rows.map((row, index) => {
    const name = `embedding ${index}: `;
    if (all.pooling === "none" && row.length > 2 * shownOfToken) {
      return `${name}${values(row.subarray(0, shownOfToken))}  ... ${values(row.subarray(-shownOfToken))}\n`;
    }
    if (rows.length === 1 || row.length <= shownOfText) return `${name}${values(row)}\n`;
    return `${name}${values(row.subarray(0, shownOfText))} ...\n`;
  });
  return lines.join("") + (hasMatrix(all) ? similarityText(all.texts, rows) : "");
}

function hasMatrix({ texts, pooling }: EmbeddedTexts): boolean {
  return texts.length > 1 && pooling !== "none" && pooling !== "rank";
}

function matrixOf(rows: readonly Float32Array[]): number[][] {
  return rows.map((a) => rows.map((b) => Number(cosineSimilarity(a, b).toFixed(4))));
}

function similarityText(texts: readonly string[], rows: readonly Float32Array[]): string {
  const matrix = rows.map((a, at) => [
    ...rows.map((b) => cosineSimilarity(a, b).toFixed(2)),
    `${at}  ${labelOf(texts[at]!)}`,
  ]);
  const numbers = rows.map((_, at) => String(at));
  return `\ncosine similarity\n${tableText([[...numbers, ""], ...matrix], [...numbers.keys()])}`;
}

function labelOf(text: string): string {
  const line = text.replace(/\s+/g, " ");
  return line.length > labelLength ? `${line.slice(0, labelLength - 3)}...` : line;
}

function scoresText({ found, labels = [] }: EmbeddedTexts): string {
  return found
    .flatMap(({ vector }, text) =>
      Array.from(vector, (score, at) => {
        const label = vector.length === 1 ? "" : ` [${labels[at] || at}]`;
        return `rerank score ${text}: ${score.toFixed(3).padStart(8)}${label}\n`;
      }),
    )
    .join("");
}
