// npm run bench:cache-compress -- FOLDER: would copies of state pay for being compressed? FOLDER holds segments of one model
// (a folder of "state"; `lantern run --cache-disk 500 --cache-folder F` makes one). Says of every way: bytes, speed in both
// directions, and for Q8_0, which is lossy, the error. docs/journal/cache.md has what was decided.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import zlib from "node:zlib";
import { crc32 } from "../src/base/crc32.ts";
import { UsageError } from "../src/base/errors.ts";
import { f16ToF32 } from "../src/base/half.ts";
import {
  RECORD_HEADER_BYTES,
  readRecordHeader,
  SEGMENT_EXTENSION,
  SEGMENT_HEADER_BYTES,
} from "../src/engine/tiers/segment.ts";
import { bench, sum, timed } from "./harness.ts";

const MOST_UNITS = 64;

/** Units of the size of the first one. */
function unitsOf(folder: string): Buffer[] {
  const units: Buffer[] = [];
  for (const name of readdirSync(folder).filter((file) => file.endsWith(SEGMENT_EXTENSION))) {
    const bytes = readFileSync(join(folder, name));
    for (let at = SEGMENT_HEADER_BYTES; at + RECORD_HEADER_BYTES <= bytes.length; ) {
      const record = readRecordHeader(bytes.subarray(at, at + RECORD_HEADER_BYTES), crc32);
      if (!record) break;
      const start = at + RECORD_HEADER_BYTES;
      units.push(bytes.subarray(start, start + record.bytes));
      at = start + record.bytes;
    }
  }
  return units.filter(({ length }) => length === units[0]!.length).slice(0, MOST_UNITS);
}

/** The low bytes of all halves, then the high ones. */
function shuffle(unit: Buffer): Buffer {
  const half = unit.length >> 1;
  const out = Buffer.allocUnsafe(unit.length);
  for (let i = 0; i < half; i++) {
    out[i] = unit[2 * i]!;
    out[half + i] = unit[2 * i + 1]!;
  }
  return out;
}

function unshuffle(unit: Buffer): Buffer {
  const half = unit.length >> 1;
  const out = Buffer.allocUnsafe(unit.length);
  for (let i = 0; i < half; i++) {
    out[2 * i] = unit[i]!;
    out[2 * i + 1] = unit[half + i]!;
  }
  return out;
}

interface Codec {
  name: string;
  pack(unit: Buffer): Buffer;
  unpack(packed: Buffer): Buffer;
}

const zstd = (level: number): Codec => ({
  name: `zstd ${level}`,
  pack: (unit) =>
    zlib.zstdCompressSync(unit, { params: { [zlib.constants.ZSTD_c_compressionLevel]: level } }),
  unpack: (packed) => zlib.zstdDecompressSync(packed),
});

const codecs: readonly Codec[] = [
  { name: "copy", pack: (unit) => Buffer.from(unit), unpack: (packed) => Buffer.from(packed) },
  zstd(1),
  zstd(3),
  {
    name: "deflate 1",
    pack: (unit) => zlib.deflateRawSync(unit, { level: 1 }),
    unpack: (packed) => zlib.inflateRawSync(packed),
  },
];

async function packed({ pack, unpack }: Codec, units: readonly Buffer[]) {
  const { result, ms: packMs } = await timed(() => units.map(pack));
  const { result: back, ms: unpackMs } = await timed(() => result.map(unpack));
  if (back.some((unit, i) => Buffer.compare(unit, units[i]!) !== 0)) throw new Error("it differs");
  return { bytes: sum(result.map(({ length }) => length)), packMs, unpackMs };
}

/** What Q8_0 would change in F16 values: the RMS error as a share of the RMS value. */
function q8Error(units: readonly Buffer[]): number {
  let wrong = 0;
  let all = 0;
  for (const unit of units) {
    for (let at = 0; at + 64 <= unit.length; at += 64) {
      const values = Array.from({ length: 32 }, (_, i) => f16ToF32(unit.readUInt16LE(at + 2 * i)));
      const scale = Math.max(...values.map(Math.abs)) / 127;
      for (const value of values) {
        const rounded = scale === 0 ? 0 : Math.round(value / scale) * scale;
        wrong += (value - rounded) ** 2;
        all += value * value;
      }
    }
  }
  return Math.sqrt(wrong / all);
}

await bench("npm run bench:cache-compress --", "FOLDER", {}, async (_, [folder]) => {
  const units = unitsOf(folder!);
  if (units.length === 0) throw new UsageError(`${folder} has no segments of stored state`);
  const total = units.length * units[0]!.length;
  console.log(`${units.length} units of ${units[0]!.length} bytes`);
  const shuffled = codecs.map(
    (codec): Codec => ({
      name: `${codec.name}, bytes shuffled`,
      pack: (unit) => codec.pack(shuffle(unit)),
      unpack: (bytes) => unshuffle(codec.unpack(bytes)),
    }),
  );
  for (const one of [...codecs, ...shuffled]) {
    await packed(one, units); // warm
    const { bytes, packMs, unpackMs } = await packed(one, units);
    const speed = (ms: number) => `${(total / 1e3 / ms).toFixed(0)} MB/s`;
    console.log(
      `${one.name.padEnd(28)} ${(bytes / total).toFixed(3)} of the bytes, pack ${speed(packMs)}, unpack ${speed(unpackMs)}`,
    );
  }
  const error = (100 * q8Error(units)).toFixed(2);
  console.log(`q8_0 of f16: 0.531 of the bytes, RMS error ${error}%`);
});
