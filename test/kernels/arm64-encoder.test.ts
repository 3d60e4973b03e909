// The arm64 encoder: every instruction of the table is what GNU as makes of the same line, for many operands; and lines
// with the words that they must give, which need no assembler.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import {
  Arm64Code,
  type Arm64Operand,
  float8,
  immediates,
  operandPattern,
  SP,
  ZR,
} from "../../src/kernels/asm/arm64.ts";
import {
  type Arm64Instruction,
  arm64Instructions,
} from "../../src/kernels/asm/arm64-instructions.ts";
import { Random } from "../support/random.ts";

const names = Object.keys(arm64Instructions) as Arm64Instruction[];
const tools = "aarch64-linux-gnu-";
const hasTools = spawnSync(`${tools}as`, ["--version"]).status === 0;

/** One instruction's word. Labels are `words` further on. */
function wordOf(name: Arm64Instruction, operands: readonly (number | "label")[], words = 0) {
  const code = new Arm64Code();
  const label = code.label();
  code.op(
    name,
    ...operands.map((operand): Arm64Operand => (operand === "label" ? label : operand)),
  );
  while (code.words.length < words) code.words.push(0);
  code.place(label);
  const { bytes } = code.finish("test");
  return new DataView(bytes.buffer).getUint32(0, true);
}

interface Line {
  readonly name: Arm64Instruction;
  readonly text: string;
  readonly word: number;
}

const floats = [...new Array(256).keys()].map((byte) => {
  const exponent = (((byte >> 4) & 7) ^ 4) - 3;
  return (byte & 128 ? -1 : 1) * 2 ** exponent * (1 + (byte & 15) / 16);
});

function randomLine(name: Arm64Instruction, random: Random): Line {
  const operands: (number | "label")[] = [];
  // All registers of a line differ: pairs must, and addresses that are written back.
  const registers = [...new Array(31).keys()].sort(() => random.unit() - 0.5);
  const distance = 1 + random.below(64);
  const text = arm64Instructions[name][1].replace(
    operandPattern,
    (operand, register?: string, immediate?: string, lane?: string) => {
      if (register) {
        const number = registers.pop()!;
        operands.push(number);
        return `${operand[0]!.toLowerCase()}${number}`;
      }
      const kind = immediate ?? lane;
      if (!kind) {
        operands.push("label");
        return `. + ${4 * distance}`;
      }
      const { least, most, step = 1 } = immediates[kind]!;
      const value = random.pick([least, most, least + step * random.below((most - least) / step)]);
      operands.push(value);
      if (lane) return `[${value}]`;
      return kind === "float8" ? `#${floats[value]}` : `#${value}`;
    },
  );
  const mnemonic = name.startsWith("b.") ? name : name.split(".")[0];
  return { name, text: `${mnemonic} ${text}`, word: wordOf(name, operands, distance) };
}

function assemble(lines: readonly string[]): DataView {
  const folder = mkdtempSync(join(tmpdir(), "lantern-arm64-"));
  try {
    writeFileSync(join(folder, "a.s"), `.arch armv8.6-a\n${lines.join("\n")}\n`);
    const run = (tool: string, ...args: string[]) => {
      const { status, stderr } = spawnSync(tools + tool, args, { cwd: folder });
      if (status !== 0) throw new Error(`${tool}: ${stderr}`);
    };
    run("as", "a.s", "-o", "a.o");
    run("objcopy", "-O", "binary", "-j", ".text", "a.o", "a.bin");
    const { buffer, byteOffset, length } = readFileSync(join(folder, "a.bin"));
    return new DataView(buffer, byteOffset, length);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const hex = (word: number) => word.toString(16).padStart(8, "0");

test.skipIf(!hasTools)(
  `every instruction, as GNU as writes it${hasTools ? "" : " [no aarch64-linux-gnu-as]"}`,
  () => {
    const random = new Random(8);
    const lines = names.flatMap((name) =>
      [...new Array(12).keys()].map(() => randomLine(name, random)),
    );
    const words = assemble(lines.map(({ text }) => text));
    expect(words.byteLength).toBe(4 * lines.length);
    const wrong = lines.filter(({ word }, i) => word !== words.getUint32(4 * i, true));
    expect(wrong.map(({ name, text, word }) => `${name}: ${text}: ${hex(word)}`)).toEqual([]);
  },
);

describe("words, by themselves", () => {
  test.each<[word: string, name: Arm64Instruction, ...operands: number[]]>([
    ["4ea28420", "add.4s", 0, 1, 2],
    ["4f82e020", "sdot.4s_lane", 0, 1, 2, 0],
    ["4fbfebff", "sdot.4s_lane", 31, 31, 31, 3],
    ["4fa81820", "fmla.4s_lane", 0, 1, 8, 3],
    ["4e82a420", "smmla.4s", 0, 1, 2],
    ["4e823820", "zip1.4s", 0, 1, 2],
    ["4e0a7928", "zip2.16b", 8, 9, 10],
    ["4e453883", "zip1.8h", 3, 4, 5],
    ["4ec57883", "zip2.2d", 3, 4, 5],
    ["3dc00803", "ldr.q", 3, 0, 32],
    ["3dfffc03", "ldr.q", 3, 0, 65520],
    ["3cdf0003", "ldur.q", 3, 0, -16],
    ["ad7f8400", "ldp.q", 0, 1, 0, -16],
    ["ad1f8440", "stp.q", 0, 1, 2, 1008],
    ["6dbc27e8", "stp.d_pre", 8, 9, SP, -64],
    ["6cc427e8", "ldp.d_post", 8, 9, SP, 64],
    ["7100053f", "subs.w_imm", ZR, 9, 1],
    ["91400421", "add.imm_lsl12", 1, 1, 1],
    ["9b217c41", "smaddl", 1, 2, 1, ZR],
    ["6f0c0420", "ushr.16b", 0, 1, 4],
    ["6f210420", "ushr.4s", 0, 1, 31],
    ["4f3f5420", "shl.4s", 0, 1, 31],
    ["4f00e5e3", "movi.16b", 3, 15],
    ["4f03f600", "fmov.4s", 0, 0x70],
    ["0e217801", "fcvtl.4s", 1, 0],
    ["d65f03c0", "ret"],
  ])("%s %s", (word, name, ...operands) => {
    expect(hex(wordOf(name, operands))).toBe(word);
  });

  test("numbers of fmov are those that have a byte", () => {
    for (const [byte, value] of floats.entries()) expect(float8(value)).toBe(byte);
    for (const value of [0, -0, 0.1, 0.1171875, 32, 1.03125, Infinity, NaN, 2 ** -149]) {
      expect(float8(value), `${value}`).toBeUndefined();
    }
  });

  test("branches go back and forth", () => {
    const code = new Arm64Code();
    const [start, end] = [code.label(), code.label()];
    code.place(start);
    code.op("cbz.w", 1, end);
    code.op("b", start);
    code.op("b.ne", start);
    code.place(end);
    code.op("ret");
    const words = new Uint32Array(code.finish("branches").bytes.buffer);
    expect([...words].map(hex)).toEqual(["34000061", "17ffffff", "54ffffc1", "d65f03c0"]);
  });

  test("constants stand behind the code, each once, on multiples of 16 bytes", () => {
    const code = new Arm64Code();
    const [one, two] = [new Uint8Array(16).fill(1), new Uint8Array(16).fill(2)];
    code.op("ldr.q_literal", 0, code.constant(one));
    code.op("ldr.q_literal", 1, code.constant(two));
    code.op("ldr.q_literal", 2, code.constant(one.slice()));
    code.op("ret");
    code.op("ret");
    const { bytes } = code.finish("constants");
    expect(bytes.length).toBe(32 + 32);
    expect([...new Uint32Array(bytes.buffer, 0, 3)].map(hex)).toEqual([
      "9c000100",
      "9c000161",
      "9c0000c2",
    ]);
    expect(bytes.subarray(32)).toEqual(Uint8Array.of(...one, ...two));
  });
});

describe("what cannot be said is refused", () => {
  test.each<[message: RegExp, name: Arm64Instruction, ...operands: number[]]>([
    [/register 32, expected 0\.\.31/, "add.4s", 0, 32, 1],
    [/2 operands, expected 3/, "add.4s", 0, 1],
    [/immediate 0, expected 1\.\.8/, "ushr.16b", 0, 1, 0],
    [/immediate 8, expected 0\.\.7/, "shl.16b", 0, 1, 8],
    [/immediate 24, expected 0\.\.65520 in steps of 16/, "ldr.q", 0, 1, 24],
    [/immediate 65536/, "ldr.q", 0, 1, 65536],
    [/immediate -257/, "ldur.q", 0, 1, -257],
    [/immediate 4, expected 0\.\.3/, "sdot.4s_lane", 0, 1, 2, 4],
    [/7 is no label/, "b", 7],
  ])("%s", (message, name, ...operands) => {
    expect(() => wordOf(name, operands)).toThrow(message);
  });

  test("a label that is nowhere, or twice", () => {
    const code = new Arm64Code();
    const label = code.label();
    code.op("b", label);
    expect(() => code.finish("lost")).toThrow("lost: a label was never placed");
    code.place(label);
    expect(() => code.place(label)).toThrow("placed twice");
  });
});
