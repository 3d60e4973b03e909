// Cuts blocks of a file into one of their planes, on the GPU: words of the plane from bytes that lie anywhere. The host then only
// copies; while a model is loaded, it cuts them itself (upload.ts).

import { LANES } from "../wgsl/kernel.ts";
import type { StreamTarget } from "./stream-layout.ts";

/** Bindings: 0: blocks as in the file; 1: exactly the words that are written. */
export function cutPlaneText({
  blockBytes,
  from,
  bytes,
}: NonNullable<StreamTarget["plane"]>): string {
  return `
@group(0) @binding(0) var<storage, read> blocks: array<u32>;
@group(0) @binding(1) var<storage, read_write> plane: array<u32>;

@compute @workgroup_size(${LANES})
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= arrayLength(&plane)) { return; }
  var word = 0u;
  for (var i = 0u; i < 4u; i++) {
    let to = id.x * 4u + i;
    let at = to / ${bytes}u * ${blockBytes}u + ${from}u + to % ${bytes}u;
    word |= ((blocks[at >> 2u] >> ((at & 3u) * 8u)) & 0xffu) << (i * 8u);
  }
  plane[id.x] = word;
}
`;
}

/** Workgroups for `bytes` bytes of a plane. */
export function cutGroups(bytes: number): number {
  return Math.ceil(bytes / 4 / LANES);
}
