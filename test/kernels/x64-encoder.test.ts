// The x86-64 encoder: the bytes of every form are those of the GNU assembler. They are committed in x64-encodings.txt
// (hex, then text), so that this needs no assembler; where there is one, the file itself is checked against it.
// After a change of x64-forms.ts, LANTERN_WRITE_ENCODINGS=1 npx vitest run test/kernels/x64-encoder.test.ts writes it anew.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import {
  memory,
  type Operand,
  r32,
  r64,
  X64Assembler,
  xmm,
  ymm,
  zmm,
} from "../../src/kernels/asm/x64.ts";
import { forms, programs } from "./x64-forms.ts";

const encodings = new URL("x64-encodings.txt", import.meta.url);
const hasAssembler = spawnSync("as", ["--version"]).stdout?.includes("GNU assembler") ?? false;
const isX64 = process.arch === "x64";
const canAssemble = hasAssembler && isX64;
const why = canAssemble ? "" : " [needs GNU as for x86-64]";

const hex = (bytes: ArrayLike<number>): string => Buffer.from(Array.from(bytes)).toString("hex");

/** What GNU as makes of each line, from its listing. */
function assembleLines(lines: readonly string[]): string[] {
  const folder = mkdtempSync(join(tmpdir(), "lantern-as-"));
  try {
    const [source, listing] = [join(folder, "x.s"), join(folder, "x.lst")];
    writeFileSync(source, `.intel_syntax noprefix\n${lines.join("\n")}\n`);
    const wide = ["--listing-lhs-width=8", "--listing-rhs-width=200"];
    execFileSync("as", [`-al=${listing}`, ...wide, "-o", join(folder, "x.o"), source]);
    const found: string[] = [];
    for (const line of readFileSync(listing, "utf8").split("\n")) {
      const match = /^ *(\d+) [0-9a-f]{4} ([0-9A-F ]+?)\s*\t/.exec(line);
      if (match) found[Number(match[1]) - 2] = match[2]!.replaceAll(" ", "").toLowerCase();
    }
    return found;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The code section of a whole text. */
function assembleProgram(text: string): Uint8Array {
  const folder = mkdtempSync(join(tmpdir(), "lantern-as-"));
  try {
    const [source, object] = [join(folder, "x.s"), join(folder, "x.o")];
    writeFileSync(source, `.intel_syntax noprefix\n${text}`);
    execFileSync("as", ["-o", object, source]);
    execFileSync("objcopy", ["-O", "binary", "-j", ".text", object]);
    return readFileSync(object);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

if (process.env.LANTERN_WRITE_ENCODINGS === "1") {
  const bytes = assembleLines(forms.map(({ text }) => text));
  writeFileSync(encodings, forms.map(({ text }, i) => `${bytes[i]} ${text}\n`).join(""));
}

const committed = readFileSync(encodings, "utf8").trimEnd().split("\n");

describe("forms", () => {
  test("are those whose bytes are committed", () => {
    const texts = committed.map((line) => line.slice(line.indexOf(" ") + 1));
    expect(texts).toEqual(forms.map(({ text }) => text));
  });

  test("have the committed bytes", () => {
    const written = forms.map(({ text, emit }) => {
      const a = new X64Assembler(text);
      emit(a);
      return `${hex(a.bytes)} ${text}`;
    });
    expect(written).toEqual(committed);
  });

  test.skipIf(!canAssemble)(`the committed bytes are GNU as's${why}`, () => {
    const bytes = assembleLines(forms.map(({ text }) => text));
    expect(forms.map(({ text }, i) => `${bytes[i]} ${text}`)).toEqual(committed);
  });
});

describe("labels and constants", () => {
  test.skipIf(!canAssemble).each(programs)(`are as GNU as places them${why}: %#`, (program) => {
    expect(hex(program.bytes)).toBe(hex(assembleProgram(program.text)));
  });

  test("a short jump back, a long one forward", () => {
    expect(hex(programs[0]!.bytes)).toBe("ffc975fc");
    expect(hex(programs[1]!.bytes).slice(0, 16)).toBe("85c90f8eda000000");
  });

  test("alignment is filled with what does nothing", () => {
    for (let before = 1; before < 64; before++) {
      const a = new X64Assembler("aligned");
      for (let i = 0; i < before; i++) a.ret();
      a.align(64);
      expect(a.bytes.length).toBe(64);
    }
  });

  test("a label that is bound nowhere is an error", () => {
    const a = new X64Assembler("lost");
    a.jump("ne", a.label());
    expect(() => a.finish()).toThrow("lost: a label that is used is bound nowhere");
  });
});

describe("forms that do not exist", () => {
  const address = (broadcast = false): Operand => memory(r64(0), 0, { broadcast });
  test.each<[string, (a: X64Assembler) => void]>([
    [
      "vpand has no form for operands (zmm, zmm, zmm)",
      (a) => a.op("vpand", zmm(1), zmm(2), zmm(3)),
    ],
    ["vpand has no form", (a) => a.op("vpand", ymm(1), ymm(16), ymm(3))],
    ["vpaddb has no form", (a) => a.op("vpaddb", zmm(1), zmm(2), address(true))],
    ["vpaddd has no form for operands (xmm, xmm)", (a) => a.op("vpaddd", xmm(1), xmm(2))],
    ["lea has no form", (a) => a.op("lea", r64(1))],
    ["5000000000 does not fit 32 bits", (a) => a.op("mov", r32(1), 5000000000)],
  ])("%s", (message, emit) => {
    expect(() => emit(new X64Assembler("f"))).toThrow(message);
  });
});
