// WebAssembly bytes: a table of opcodes under the specification's names, and a writer for functions and modules. It
// knows nothing of kernels. Only the lowering's instructions are here; a new instruction is one line.

/** The immediate that follows an opcode. */
type Immediate = "none" | "index" | "memory" | "i32" | "i64" | "f32" | "block" | "v128" | "lane";

/** The prefix is 0 (none), 0xfc (saturating conversions), 0xfd (SIMD) or 0xfe (atomics). */
type Row = readonly [prefix: number, code: number, immediate?: Immediate];

const plain = 0;
const atomic = 0xfe;

export const opcodes = {
  unreachable: [0, 0x00],
  block: [0, 0x02, "block"],
  loop: [0, 0x03, "block"],
  if: [0, 0x04, "block"],
  end: [0, 0x0b],
  br: [0, 0x0c, "index"],
  br_if: [0, 0x0d, "index"],
  return: [0, 0x0f],
  drop: [0, 0x1a],
  "local.get": [0, 0x20, "index"],
  "local.set": [0, 0x21, "index"],
  "local.tee": [0, 0x22, "index"],
  "i32.load": [0, 0x28, "memory"],
  "f32.load": [0, 0x2a, "memory"],
  "i32.store": [0, 0x36, "memory"],
  "i64.store": [0, 0x37, "memory"],
  "f32.store": [0, 0x38, "memory"],
  "i32.const": [0, 0x41, "i32"],
  "i64.const": [0, 0x42, "i64"],
  "f32.const": [0, 0x43, "f32"],
  "i32.eqz": [0, 0x45],
  "i32.eq": [0, 0x46],
  "i32.ne": [0, 0x47],
  "i32.lt_s": [0, 0x48],
  "i32.gt_s": [0, 0x4a],
  "i32.le_s": [0, 0x4c],
  "i32.ge_s": [0, 0x4e],
  "i64.lt_s": [0, 0x53],
  "i64.gt_s": [0, 0x55],
  "i32.add": [0, 0x6a],
  "i32.sub": [0, 0x6b],
  "i32.mul": [0, 0x6c],
  "i32.and": [0, 0x71],
  "i32.or": [0, 0x72],
  "i32.shr_u": [0, 0x76],
  "i64.add": [0, 0x7c],
  "i64.mul": [0, 0x7e],
  "f32.sqrt": [0, 0x91],
  "f32.add": [0, 0x92],
  "f32.sub": [0, 0x93],
  "f32.mul": [0, 0x94],
  "f32.div": [0, 0x95],
  "f32.max": [0, 0x97],
  "i32.wrap_i64": [0, 0xa7],
  "i64.extend_i32_s": [0, 0xac],
  "i64.extend_i32_u": [0, 0xad],
  "f32.convert_i32_s": [0, 0xb2],
  "i64.trunc_sat_f64_s": [0xfc, 6],

  "v128.load": [0xfd, 0, "memory"],
  "v128.load8x8_s": [0xfd, 1, "memory"],
  "v128.load16x4_s": [0xfd, 3, "memory"],
  "v128.load16x4_u": [0xfd, 4, "memory"],
  "v128.load32_splat": [0xfd, 9, "memory"],
  "v128.store": [0xfd, 11, "memory"],
  "v128.const": [0xfd, 12, "v128"],
  "i8x16.shuffle": [0xfd, 13, "v128"],
  "i8x16.swizzle": [0xfd, 14],
  "i32x4.splat": [0xfd, 17],
  "f32x4.splat": [0xfd, 19],
  "i32x4.extract_lane": [0xfd, 27, "lane"],
  "f32x4.extract_lane": [0xfd, 31, "lane"],
  "i32x4.gt_s": [0xfd, 59],
  "f32x4.lt": [0xfd, 67],
  "v128.not": [0xfd, 77],
  "v128.and": [0xfd, 78],
  "v128.andnot": [0xfd, 79],
  "v128.or": [0xfd, 80],
  "v128.xor": [0xfd, 81],
  "v128.bitselect": [0xfd, 82],
  "v128.store64_lane": [0xfd, 91, "memory"],
  "v128.load32_zero": [0xfd, 92, "memory"],
  "i8x16.narrow_i16x8_s": [0xfd, 101],
  "f32x4.nearest": [0xfd, 106],
  "i8x16.shl": [0xfd, 107],
  "i8x16.shr_u": [0xfd, 109],
  "i8x16.add": [0xfd, 110],
  "i8x16.sub": [0xfd, 113],
  "i16x8.narrow_i32x4_s": [0xfd, 133],
  "i16x8.narrow_i32x4_u": [0xfd, 134],
  "i16x8.extend_low_i8x16_s": [0xfd, 135],
  "i16x8.extend_high_i8x16_s": [0xfd, 136],
  "i16x8.extend_low_i8x16_u": [0xfd, 137],
  "i16x8.extend_high_i8x16_u": [0xfd, 138],
  "i16x8.shl": [0xfd, 139],
  "i16x8.shr_s": [0xfd, 140],
  "i16x8.shr_u": [0xfd, 141],
  "i16x8.add": [0xfd, 142],
  "i16x8.mul": [0xfd, 149],
  "i32x4.extend_low_i16x8_s": [0xfd, 167],
  "i32x4.shl": [0xfd, 171],
  "i32x4.shr_s": [0xfd, 172],
  "i32x4.shr_u": [0xfd, 173],
  "i32x4.add": [0xfd, 174],
  "i32x4.sub": [0xfd, 177],
  "i32x4.mul": [0xfd, 181],
  "i32x4.min_s": [0xfd, 182],
  "i32x4.max_s": [0xfd, 184],
  "i32x4.dot_i16x8_s": [0xfd, 186],
  "f32x4.abs": [0xfd, 224],
  "f32x4.neg": [0xfd, 225],
  "f32x4.sqrt": [0xfd, 227],
  "f32x4.add": [0xfd, 228],
  "f32x4.sub": [0xfd, 229],
  "f32x4.mul": [0xfd, 230],
  "f32x4.div": [0xfd, 231],
  "f32x4.min": [0xfd, 232],
  "f32x4.max": [0xfd, 233],
  "f32x4.pmin": [0xfd, 234],
  "f32x4.pmax": [0xfd, 235],
  "i32x4.trunc_sat_f32x4_s": [0xfd, 248],
  "f32x4.convert_i32x4_s": [0xfd, 250],
  "i8x16.relaxed_swizzle": [0xfd, 0x100],
  "i32x4.relaxed_trunc_f32x4_s": [0xfd, 0x101],
  "f32x4.relaxed_madd": [0xfd, 0x105],
  "i16x8.relaxed_dot_i8x16_i7x16_s": [0xfd, 0x112],
  "i32x4.relaxed_dot_i8x16_i7x16_add_s": [0xfd, 0x113],

  "memory.atomic.notify": [0xfe, 0x00, "memory"],
  "memory.atomic.wait32": [0xfe, 0x01, "memory"],
  "i32.atomic.load": [0xfe, 0x10, "memory"],
  "i32.atomic.store": [0xfe, 0x17, "memory"],
  "i32.atomic.rmw.add": [0xfe, 0x1e, "memory"],
} as const;

export type Instruction = keyof typeof opcodes;

export type WasmType = "i32" | "i64" | "f32" | "f64" | "v128";
const typeCodes: Readonly<Record<WasmType, number>> = {
  i32: 0x7f,
  i64: 0x7e,
  f32: 0x7d,
  f64: 0x7c,
  v128: 0x7b,
};
const emptyBlock = 0x40;

/** One function: its body is appended instruction by instruction. */
export class WasmFunction {
  readonly name: string;
  readonly params: readonly WasmType[];
  readonly results: readonly WasmType[];
  readonly locals: WasmType[] = [];
  readonly bytes: number[] = [];

  constructor(name: string, params: readonly WasmType[], results: readonly WasmType[] = []) {
    this.name = name;
    this.params = params;
    this.results = results;
  }

  /** A new local; its index. */
  local(type: WasmType): number {
    return this.params.length + this.locals.push(type) - 1;
  }

  /**
   * Appends an instruction. `imm` is an index, a constant or a lane; for memory instructions `imm` is the offset (no
   * alignment is promised, except to atomics, which demand their own) and `lane` the lane, if they have one.
   */
  op(name: Instruction, imm: number | bigint = 0, lane?: number): void {
    const [prefix, code, immediate = "none"] = opcodes[name] as Row;
    if (prefix !== plain) this.bytes.push(prefix);
    if (prefix === plain) this.bytes.push(code);
    else pushUnsigned(this.bytes, code);
    if (immediate === "index") pushUnsigned(this.bytes, Number(imm));
    else if (immediate === "lane") this.bytes.push(Number(imm));
    else if (immediate === "i32" || immediate === "i64") pushSigned(this.bytes, BigInt(imm));
    else if (immediate === "f32") pushFloat(this.bytes, Number(imm));
    else if (immediate === "block") this.bytes.push(emptyBlock);
    else if (immediate === "memory") {
      this.bytes.push(prefix === atomic ? 2 : 0); // log2 of the alignment
      pushUnsigned(this.bytes, Number(imm));
    }
    if (lane !== undefined) this.bytes.push(lane);
  }

  /** An instruction with 16 immediate bytes: v128.const, i8x16.shuffle. */
  op16(name: Instruction, immediate: ArrayLike<number>): void {
    const [prefix, code] = opcodes[name] as Row;
    this.bytes.push(prefix);
    pushUnsigned(this.bytes, code);
    for (let i = 0; i < 16; i++) this.bytes.push(immediate[i]!);
  }
}

export interface WasmMemory {
  /** In pages of 64 KiB. */
  initial: number;
  maximum: number;
  shared: boolean;
  /** 64-bit addresses. */
  memory64: boolean;
}

/** A module that imports its memory as "env"."memory" and exports every function under its name. */
export function assembleModule(
  functions: readonly WasmFunction[],
  memory: WasmMemory,
): Uint8Array<ArrayBuffer> {
  const bytes: number[] = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
  const types = functions.map((f) => [0x60, ...typeVector(f.params), ...typeVector(f.results)]);
  pushSection(bytes, 1, vector(types));
  const flags = 1 | (memory.shared ? 2 : 0) | (memory.memory64 ? 4 : 0);
  const limits = [flags, ...unsigned(memory.initial), ...unsigned(memory.maximum)];
  pushSection(bytes, 2, vector([[...text("env"), ...text("memory"), 2, ...limits]]));
  pushSection(bytes, 3, vector(functions.map((_, i) => unsigned(i))));
  pushSection(bytes, 7, vector(functions.map((f, i) => [...text(f.name), 0, ...unsigned(i)])));
  pushSection(bytes, 10, vector(functions.map(code)));
  return Uint8Array.from(bytes);
}

function code(f: WasmFunction): number[] {
  const locals = f.locals.map((type) => [1, typeCodes[type]]);
  const body = [...vector(locals), ...f.bytes, opcodes.end[1]];
  return [...unsigned(body.length), ...body];
}

function typeVector(types: readonly WasmType[]): number[] {
  return vector(types.map((type) => [typeCodes[type]]));
}

function vector(items: readonly (readonly number[])[]): number[] {
  return [...unsigned(items.length), ...items.flat()];
}

function pushSection(bytes: number[], id: number, content: readonly number[]): void {
  bytes.push(id, ...unsigned(content.length));
  for (const byte of content) bytes.push(byte);
}

function text(value: string): number[] {
  const bytes = [...new TextEncoder().encode(value)];
  return [...unsigned(bytes.length), ...bytes];
}

function unsigned(value: number): number[] {
  const bytes: number[] = [];
  pushUnsigned(bytes, value);
  return bytes;
}

/** LEB128; values to 2^53. */
function pushUnsigned(bytes: number[], value: number): void {
  let rest = value;
  while (rest > 0x7f) {
    bytes.push((rest % 128) | 0x80);
    rest = Math.floor(rest / 128);
  }
  bytes.push(rest);
}

function pushSigned(bytes: number[], value: bigint): void {
  let rest = value;
  for (;;) {
    const low = Number(rest & 0x7fn);
    rest >>= 7n;
    const done = (rest === 0n && (low & 0x40) === 0) || (rest === -1n && (low & 0x40) !== 0);
    bytes.push(done ? low : low | 0x80);
    if (done) return;
  }
}

function pushFloat(bytes: number[], value: number): void {
  bytes.push(...new Uint8Array(Float32Array.of(value).buffer));
}
