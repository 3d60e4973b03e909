// The WebAssembly lowering seen by tools that we did not write: every op's module validates in the engine and in wabt,
// and one small kernel's text is golden. What the code computes is tested in ops.test.ts.

import { expect, test } from "vitest";
import wabt from "wabt";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import { verify } from "../../src/kernels/ir/verify.ts";
import { lowerToWasm } from "../../src/kernels/lower/wasm.ts";
import { everyOp, opCase } from "./op-cases.ts";
import { axpy, nibbleDots } from "./small-kernels.ts";
import { wabtFeatures } from "./wabt-text.ts";
import { compile, describeTargets, moduleOf } from "./wasm-runner.ts";

const tools = await wabt();

function textOf(bytes: Uint8Array): string {
  const module = tools.readWasm(bytes, wabtFeatures);
  module.validate();
  const text = module.toText({});
  module.destroy();
  return text;
}

test("axpy", () => {
  verify(axpy());
  const module = moduleOf([axpy()], { relaxed: true, memory64: false });
  expect(textOf(module)).toBe(`(module
  (type (;0;) (func (param i32 i32 i32)))
  (import "env" "memory" (memory (;0;) 1 64))
  (func (;0;) (type 0) (param i32 i32 i32)
    (local v128 v128 i32 v128 v128 v128 i32 i32 i32 i32)
    v128.const i32x4 0x40200000 0x40200000 0x40200000 0x40200000
    local.set 3
    local.get 3
    local.set 4
    local.get 2
    local.tee 5
    i32.const 0
    i32.gt_s
    if  ;; label = @1
      loop  ;; label = @2
        local.get 0
        v128.load align=1
        local.set 6
        local.get 1
        v128.load align=1
        local.set 7
        local.get 6
        local.get 4
        local.get 7
        f32x4.relaxed_madd
        local.set 8
        local.get 1
        local.get 8
        v128.store align=1
        i32.const 16
        local.set 9
        local.get 0
        local.get 9
        i32.add
        local.set 10
        local.get 10
        local.set 0
        i32.const 16
        local.set 11
        local.get 1
        local.get 11
        i32.add
        local.set 12
        local.get 12
        local.set 1
        local.get 5
        i32.const 1
        i32.sub
        local.tee 5
        br_if 0 (;@2;)
      end
    end)
  (export "axpy" (func 0)))
`);
});

describeTargets((target) => {
  test("every op in one module validates", () => {
    const kernels = everyOp.map((op) => opCase(op, 16, "i7").kernel);
    for (const kernel of kernels) verify(kernel);
    const module = moduleOf(kernels, target);
    expect(WebAssembly.validate(module)).toBe(true);
    const text = textOf(module);
    expect(text.includes("relaxed")).toBe(target.relaxed);
    expect(text.includes("(memory (;0;) i64")).toBe(target.memory64);
  });

  test("nibble_dots computes", () => {
    const [rows, blocks] = [3, 5];
    const memory = Uint8Array.from({ length: 1024 }, (_, i) => (i * 73 + (i >> 3)) & 255);
    const args = [0, 512, 800, rows, blocks];
    const got = compile(nibbleDots(), target)(memory, args);
    for (let row = 0; row < rows; row++) {
      let sum = -32; // the accumulator starts at -8 in each of 4 lanes
      for (let i = 0; i < blocks * 16; i++) {
        const byte = memory[row * blocks * 16 + i]!;
        const at = 512 + Math.floor(i / 16) * 32 + (i % 16);
        const signed = (address: number) => (memory[address]! << 24) >> 24;
        sum += (byte & 15) * signed(at) + (byte >> 4) * signed(at + 16);
      }
      expect(new DataView(got.buffer).getInt32(804 + 4 * row, true)).toBe(sum);
    }
    const meant = memory.slice();
    interpret(nibbleDots(), meant.buffer, args);
    expect(got).toEqual(meant);
  });
});

test("vectors of another width are refused", () => {
  const wide = new KernelBuilder("wide", 32).finish();
  expect(() => lowerToWasm(wide, { relaxed: false, memory64: false })).toThrow(
    "wide: vectors of 32 bytes; WebAssembly has 16",
  );
});
