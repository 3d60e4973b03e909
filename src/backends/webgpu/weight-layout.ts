// The layout of weights on the GPU: as few buffers as the device's limits allow, filled one after the other. A matrix that is
// too large for a buffer is split between rows into parts, for each of which an op has a dispatch.
//
// Blocks of types with planes (unpack/unpack.ts) are split in two: the bytes that lanes load 16 at a time, and the rest.
// Matrices that are multiplied by the same values can be stacked: their planes of each kind follow each other without a gap,
// so that a kernel can read them as one matrix. Nothing is allocated here.

import { MemoryError } from "../../base/errors.ts";
import { bytesFor } from "../../dtypes/dtype.ts";
import { weightElements } from "../../graph/cost.ts";
import type { Weight } from "../../graph/graph.ts";
import { unpackOf } from "./unpack/table.ts";
import type { Planes } from "./unpack/unpack.ts";

/** A range of a buffer; the offset is a multiple of 256, as bindings require. */
export interface Plane {
  readonly offset: number;
  /** The bytes that are bound, a multiple of 4. The last ones may be padding. */
  readonly bytes: number;
}

/** Rows rowStart ... rowStart + rows - 1 of a weight; a vector is one row. */
export interface WeightPart {
  readonly buffer: number;
  /** The blocks as in the file, or their wide plane. */
  readonly wide: Plane;
  /** The narrow plane, of types that have planes. */
  readonly narrow: Plane | undefined;
  readonly rowStart: number;
  readonly rows: number;
}

export interface WeightLayout {
  /** Bytes of each buffer. */
  readonly buffers: readonly number[];
  readonly parts: ReadonlyMap<string, readonly WeightPart[]>;
  /** All rows of a stack, by the name of its first weight. */
  readonly stacks: ReadonlyMap<string, WeightPart>;
  readonly totalBytes: number;
  /** Matrices that are not in GPU memory, by layer in the order in which they compute; undefined: all are (stream/). */
  readonly streamed?: {
    readonly units: readonly (readonly Weight[])[];
    /** By the name of the weight. */
    readonly unitOf: ReadonlyMap<string, number>;
  };
}

/** Offsets of bindings are multiples of this on every device. */
const ALIGNMENT = 256;

/** Byte addresses in shaders are 32-bit. */
const ADDRESSABLE = 2 ** 32 - ALIGNMENT;

export interface WeightLimits {
  readonly maxBufferBytes: number;
  readonly maxBindingBytes: number;
}

export function layOutWeights(
  weights: readonly Weight[],
  limits: WeightLimits,
  stacks: readonly (readonly Weight[])[] = [],
  shapeOf: (weight: Weight) => StoredShape = storedShape,
): WeightLayout {
  const bufferBytes = Math.min(limits.maxBufferBytes, ADDRESSABLE);
  const buffers: number[] = [];
  const parts = new Map<string, readonly WeightPart[]>();
  const stackParts = new Map<string, WeightPart>();
  const place = (bytes: number): { buffer: number; offset: number } => {
    const last = buffers.length - 1;
    const offset = aligned(buffers[last] ?? 0);
    if (last >= 0 && offset + bytes <= bufferBytes) {
      buffers[last] = offset + bytes;
      return { buffer: last, offset };
    }
    buffers.push(bytes);
    return { buffer: last + 1, offset: 0 };
  };
  for (const stack of stacks) placeStack(stack, place, parts, stackParts);
  for (const weight of weights) {
    if (!parts.has(weight.name)) {
      parts.set(weight.name, placeParts(weight, shapeOf(weight), limits, place));
    }
  }
  const totalBytes = buffers.reduce((sum, bytes) => sum + bytes, 0);
  return { buffers, parts, stacks: stackParts, totalBytes };
}

type Place = (bytes: number) => { buffer: number; offset: number };

function placeParts(
  weight: Weight,
  { rows, wide, narrow }: StoredShape,
  limits: WeightLimits,
  place: Place,
): WeightPart[] {
  const rowsPerPart = Math.min(rows, Math.floor(mostPartBytes(limits) / (wide + narrow)));
  if (rowsPerPart === 0) throw tooLong(weight, wide + narrow, mostPartBytes(limits));
  const own: WeightPart[] = [];
  for (let rowStart = 0; rowStart < rows; rowStart += rowsPerPart) {
    const count = Math.min(rowsPerPart, rows - rowStart);
    const wideBytes = whole(count * wide);
    const { buffer, offset } = place(
      narrow === 0 ? wideBytes : aligned(wideBytes) + whole(count * narrow),
    );
    own.push({
      buffer,
      wide: { offset, bytes: wideBytes },
      narrow:
        narrow === 0
          ? undefined
          : { offset: offset + aligned(wideBytes), bytes: whole(count * narrow) },
      rowStart,
      rows: count,
    });
  }
  return own;
}

/** All wide planes, then all narrow ones: each begins where the one before ends. */
function placeStack(
  stack: readonly Weight[],
  place: Place,
  parts: Map<string, readonly WeightPart[]>,
  stackParts: Map<string, WeightPart>,
): void {
  const shapes = stack.map(storedShape);
  const sum = (sizeOf: (shape: StoredShape) => number): number =>
    shapes.reduce((total, shape) => total + sizeOf(shape), 0);
  const wideBytes = sum(({ rows, wide }) => rows * wide);
  const narrowBytes = sum(({ rows, narrow }) => rows * narrow);
  const { buffer, offset } = place(wideBytes + narrowBytes);
  const plane = (at: number, bytes: number): Plane | undefined =>
    bytes === 0 ? undefined : { offset: at, bytes };
  stackParts.set(stack[0]!.name, {
    buffer,
    wide: { offset, bytes: wideBytes },
    narrow: plane(offset + wideBytes, narrowBytes),
    rowStart: 0,
    rows: sum(({ rows }) => rows),
  });
  let wideAt = offset;
  let narrowAt = offset + wideBytes;
  stack.forEach((weight, i) => {
    const { rows, wide, narrow } = shapes[i]!;
    const own = { offset: wideAt, bytes: rows * wide };
    parts.set(weight.name, [
      { buffer, wide: own, narrow: plane(narrowAt, rows * narrow), rowStart: 0, rows },
    ]);
    wideAt += rows * wide;
    narrowAt += rows * narrow;
  });
}

/** Whether these can be stored without gaps, bound one by one, and bound together. */
export function stackable(weights: readonly Weight[], limits: WeightLimits): boolean {
  const [first] = weights;
  const shapes = weights.map(storedShape);
  const bytes = shapes.reduce((sum, { rows, wide, narrow }) => sum + rows * (wide + narrow), 0);
  return (
    bytes <= mostPartBytes(limits) &&
    weights.every(({ dtype, shape }) => dtype === first!.dtype && shape[1] === first!.shape[1]) &&
    shapes.every(({ rows, wide, narrow }) => {
      return (rows * wide) % ALIGNMENT === 0 && (rows * narrow) % ALIGNMENT === 0;
    })
  );
}

export interface StoredShape {
  readonly rows: number;
  /** Bytes of a row in each plane. */
  readonly wide: number;
  readonly narrow: number;
}

/** Matrices keep the file's bytes; vectors (norms, biases) become floats, so that shaders read only these. */
export function storedShape(weight: Weight): StoredShape {
  const { shape, dtype } = weight;
  if (shape.length === 1) return { rows: 1, wide: shape[0]! * 4, narrow: 0 };
  const planes = planesOf(weight);
  const cols = shape.at(-1)!;
  const rows = weightElements(weight) / cols; // those of all experts, where there are several
  if (!planes) return { rows, wide: bytesFor(dtype, cols), narrow: 0 };
  const blocks = cols / dtype.blockElems;
  return { rows, wide: blocks * planes.wide, narrow: blocks * planes.narrow };
}

/** The planes of a matrix's blocks; undefined: they are not split. */
export function planesOf({ shape, dtype }: Weight): Planes | undefined {
  const unpack = shape.length === 1 ? undefined : unpackOf(dtype);
  return unpack?.kind === "block" ? unpack.planes : undefined;
}

function mostPartBytes({ maxBufferBytes, maxBindingBytes }: WeightLimits): number {
  return whole(Math.min(maxBindingBytes, maxBufferBytes, ADDRESSABLE) - 3);
}

/** Rounded up to words of 4 bytes. */
function whole(bytes: number): number {
  return Math.ceil(bytes / 4) * 4;
}

function aligned(bytes: number): number {
  return Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
}

function tooLong({ name }: Weight, rowBytes: number, partBytes: number): MemoryError {
  return new MemoryError(
    `webgpu: a row of ${name} has ${rowBytes} bytes, but this GPU lets a shader read at most ${partBytes} bytes of a buffer. Use a model with a smaller type, or \`backend: "cpu"\``,
  );
}
