// Machine code that is kept from run to run (backends/cpu/native/kept-code.ts): the same bytes as made anew, only of the same
// sources, and found without building a kernel.

import { describe, expect, test } from "vitest";
import { KeptCode } from "../../src/backends/cpu/native/kept-code.ts";
import { lowerings } from "../../src/backends/cpu/native/native.ts";
import { blockKernels, floatKernels } from "../../src/backends/cpu/ops/matmul-kernels.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { lazyKernel } from "../../src/kernels/ir/lazy-kernel.ts";
import { print } from "../../src/kernels/ir/print.ts";
import { KernelRefused } from "../../src/kernels/lower/machine.ts";
import { matmulVariants } from "../../src/kernels/matmul-variants.ts";
import { elementwiseKernels } from "../../src/kernels/ops/elementwise-table.ts";
import { packKernelOf } from "../../src/kernels/ops/packed/pack-kernels.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import type { KeptFiles } from "../../src/platform/platform.ts";

const target = nativeTargets["x64-avx2"];

function filesInMemory(sources: string, files = new Map<string, Uint8Array<ArrayBuffer>>()) {
  const writes: number[] = [];
  const kept: KeptFiles = {
    sources,
    read: (name) => files.get(name),
    write: (name, content) => {
      writes.push(content.length);
      files.set(name, content);
    },
  };
  return { kept, files, writes };
}

/** The kernels of matmuls of these types in every variant, and all others. */
function kernels(types: readonly string[]): Kernel[] {
  const variants = matmulVariants(target);
  const matmuls = types.flatMap((type) =>
    variants.flatMap((variant) => {
      const packing = packingOf(type);
      const { vector, vectorStreams, vectorHalf, matrix, unpack } = packing
        ? blockKernels(type, layoutFor(packing, target), variant)
        : floatKernels(type as "f32", target, variant);
      const tiles = matrix.flatMap(({ kernel, inStreams }) => [kernel, inStreams]);
      return [vector, vectorStreams, vectorHalf, unpack, ...tiles];
    }),
  );
  const packers = types.map((type) => packKernelOf(type, target));
  const others = elementwiseKernels.map((make) => make(target.width, target.vectorRegisters));
  return [...matmuls, ...packers, ...others].filter((kernel) => kernel !== undefined);
}

function lower(kernel: Kernel) {
  try {
    return lowerings["x64-avx2"](kernel);
  } catch (error) {
    if (error instanceof KernelRefused) return error.message;
    throw error;
  }
}

describe("kept machine code", () => {
  test("is what would be made, refusals included, and no kernel is built for it", () => {
    const all = kernels(["f32", "q4_0"]).filter((_, i) => i % 7 === 0);
    const { kept, files, writes } = filesInMemory("one");
    const first = new KeptCode(kept, target.name);
    const made = all.map((kernel) => first.of(kernel.key!, () => lower(kernel)));
    first.save();
    expect(writes).toHaveLength(1);

    const again = new KeptCode(filesInMemory("one", files).kept, target.name);
    const found = all.map(({ key }) =>
      again.of(key!, () => {
        throw new Error(`${key} was made again`);
      }),
    );
    expect(made.some((code) => typeof code === "string")).toBe(true);
    expect(found).toEqual(made);
    again.save();
    expect(writes).toHaveLength(1);
  });

  test("a key is one kernel's", () => {
    const known = new Map<string, string>();
    for (const kernel of kernels(["f32", "f16", "q4_0", "q6_k"])) {
      const text = print(kernel);
      expect(known.get(kernel.key!) ?? text, kernel.key).toBe(text);
      known.set(kernel.key!, text);
    }
    const keys = [...known.keys()];
    expect(keys).toContain(`matmul.q4_0.16x1.compact ${target.width}`);
  });

  test("of other sources is not used, and gives way", () => {
    const [kernel] = kernels(["f32"]);
    const { kept, files } = filesInMemory("one");
    const first = new KeptCode(kept, target.name);
    first.of(kernel!.key!, () => "made by the one");
    first.save();
    const other = new KeptCode(filesInMemory("other", files).kept, target.name);
    expect(other.of(kernel!.key!, () => "made by the other")).toBe("made by the other");
    other.save();
    const back = new KeptCode(filesInMemory("one", files).kept, target.name);
    expect(back.of(kernel!.key!, () => "made again")).toBe("made again");
  });

  test("two that write at a time lose nothing but what is made again", () => {
    const { kept } = filesInMemory("one");
    const [a, b] = [new KeptCode(kept, target.name), new KeptCode(kept, target.name)];
    a.of("a", () => "of a");
    b.of("b", () => "of b");
    a.save();
    b.save();
    const third = new KeptCode(kept, target.name);
    expect(third.of("a", () => "again")).toBe("of a");
    expect(third.of("b", () => "again")).toBe("of b");
  });

  test("does not grow without end: what this run used remains", () => {
    const { kept, writes } = filesInMemory("one");
    for (let run = 0; run < 4; run++) {
      const code = new KeptCode(kept, target.name);
      code.of(`run ${run}`, () => ({ name: "large", bytes: new Uint8Array(1.5 * 2 ** 20) }));
      code.save();
    }
    expect(Math.max(...writes)).toBeLessThan(4.6 * 2 ** 20);
    const last = new KeptCode(kept, target.name);
    expect(last.of("run 0", () => "again")).toBe("again");
    expect(last.of("run 2", () => "again")).not.toBe("again");
  });

  test("a lazy kernel that is not what it was named is an error", () => {
    const [kernel] = kernels(["f32"]);
    expect(() => lazyKernel("other", kernel!.width, () => kernel!).body).toThrow(
      `the kernel other of ${kernel!.width} bytes became ${kernel!.name}`,
    );
  });
});
