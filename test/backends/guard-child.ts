// A child process for tests of guard mode (guard.test.ts): machine code that leaves its buffer ends it. Says first what it is
// about to do.
//
//   guard-child.ts right|wrong|backwards

import { guardMode } from "../../src/backends/cpu/guard/guard.ts";
import { Arena } from "../../src/backends/cpu/memory/arena.ts";
import type { Layout } from "../../src/backends/cpu/memory/layout.ts";
import { BLOCK_BYTES, openNativeJob } from "../../src/backends/cpu/native/entry.ts";
import { nativeKernels } from "../../src/backends/cpu/native/native.ts";
import { elementwiseKernels } from "../../src/kernels/ops/elementwise-table.ts";
import { nodeNative } from "../../src/platform/node-native.ts";
import { offByOne } from "../support/off-by-one.ts";

const how = process.argv[2];
const native = nativeKernels(nodeNative());
if (typeof native === "string") throw new Error(native);
const count = 96; // of floats: a multiple of any vector, and no page
const copy = elementwiseKernels.map((make) => make(native.target.width)).find(isCopy)!;
const code = native.lower(how === "wrong" ? offByOne(copy) : copy);
if (typeof code === "string") throw new Error(code);

const arena = new Arena({ shared: true, memory64: false, start: 0, guard: true });
const x = arena.allocate(count * 4, "work", "x");
const out = arena.allocate(count * 4, "work", "out");
const blocks = arena.allocate(BLOCK_BYTES, "work", "parameter blocks");
arena.commit();
const compiled = { kernels: [], nativeKernels: [copy] } as unknown as Layout["compiled"];
const layout = { arena, compiled, reports: 0 } as unknown as Layout;
const guard = guardMode().watch(layout, native.host);
console.log(guard.note);
const { memory, views } = arena;
const calls = openNativeJob({ image: native.link([code]), blocks }, native.host, memory.buffer, 0);
views.f32.fill(7, x / 4, x / 4 + count);
console.log(`${how}: copy, ${count} floats`);
if (how === "backwards") calls.copy!(x, out - 64, count);
else calls.copy!(x, out, count);
console.log(`copied ${views.f32.subarray(out / 4, out / 4 + count).every((value) => value === 7)}`);
guard.check();
console.log("checked");

function isCopy({ name }: { readonly name: string }): boolean {
  return name === "copy";
}
