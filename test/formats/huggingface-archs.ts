// The folders of data/huggingface-archs.json, in memory: transformers made their configurations and named their tensors, and a
// formula makes their values, which huggingface-archs.py also uses.

import { safetensorsOf } from "../tools/safetensors-files.ts";
import { type Files, jsonFile, tinyFolder } from "../tools/tiny-folder.ts";
import golden from "./data/huggingface-archs.json" with { type: "json" };

export interface FolderGolden {
  config: Record<string, unknown>;
  /** Names by shape, by "center,spread"; bytes by "u8,first,last". */
  tensors: Record<string, Record<string, string[]>>;
  /** What llama.cpp's converter writes: keys, and tensors with their shape and the hash of their bytes. */
  keys: Record<string, [type: string, value: unknown]>;
  gguf: Record<string, [shape: string, hash: string | null]>;
  /** Of transformers: the three largest logits at every position of the prompt. */
  logits: [id: number, logit: number][][] | null;
  /** How far ours may be from them, where llama.cpp's activation is an approximation of theirs. */
  within?: number;
}

export const folders = golden as unknown as Record<string, FolderGolden>;

export const prompt: readonly number[] = [1, 40, 77, 5, 120, 33, 200, 11, 90, 60, 61, 62];

export function goldenFolder({ config, tensors }: FolderGolden): Files {
  const stored = Object.entries(tensors).flatMap(([rule, shapes]) => {
    const isPacked = rule.startsWith("u8,");
    const [first, last] = rule.replace("u8,", "").split(",").map(Number) as [number, number];
    const [center, spread] = isPacked ? [(first + last) / 2, (last - first) / 2] : [first, last];
    return Object.entries(shapes).flatMap(([shape, names]) =>
      names.map((name) => {
        const dims = shape === "" ? [] : shape.split(",").map(Number);
        const values = valuesOf(name, dims, center, spread);
        if (!isPacked) return { name, shape: dims, bytes: new Uint8Array(values.buffer) };
        return { name, shape: dims, dtype: "U8", bytes: Uint8Array.from(values, roundEven) };
      }),
    );
  });
  const { "tokenizer.json": tokenizer, "tokenizer_config.json": settings } = tinyFolder();
  return {
    "config.json": jsonFile(config),
    "tokenizer.json": tokenizer!,
    "tokenizer_config.json": settings!,
    "model.safetensors": safetensorsOf(stored, "F32"),
  };
}

function valuesOf(
  name: string,
  shape: readonly number[],
  center: number,
  spread: number,
): Float32Array<ArrayBuffer> {
  const count = shape.reduce((a, b) => a * b, 1);
  const seed = crc32(name);
  const values = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    let x = (Math.imul(i, 0x9e3779b1) + seed) >>> 0;
    x = Math.imul(x ^ (x >>> 16), 0x85ebca6b) >>> 0;
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35) >>> 0;
    x = (x ^ (x >>> 16)) >>> 0;
    values[i] = center + spread * (((x >>> 8) / 2 ** 24) * 2 - 1);
  }
  return values;
}

function roundEven(value: number): number {
  const rounded = Math.round(value);
  return rounded - value === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded;
}

function crc32(text: string): number {
  let crc = 0xffffffff;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}
