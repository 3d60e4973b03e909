// Compares two memories byte by byte, except where floats are: there one NaN is as good as another, since neither the
// IR nor WebAssembly says which one arithmetic gives.

export interface Region {
  readonly from: number;
  readonly to: number;
  readonly kind: "bytes" | "f32" | "f16";
}

/** A sentence about the first difference, or undefined. Outside the regions bytes must be the same. */
export function firstDifference(
  got: Uint8Array<ArrayBuffer>,
  meant: Uint8Array<ArrayBuffer>,
  regions: readonly Region[],
): string | undefined {
  if (got.length !== meant.length) return `${got.length} bytes, expected ${meant.length}`;
  const [left, right] = [new DataView(got.buffer), new DataView(meant.buffer)];
  const isNaNAt: Record<Region["kind"], (view: DataView, at: number) => boolean> = {
    bytes: () => false,
    f32: (view, at) => Number.isNaN(view.getFloat32(at & ~3, true)),
    f16: (view, at) => (view.getUint16(at & ~1, true) & 0x7fff) > 0x7c00,
  };
  for (let at = 0; at < got.length; at++) {
    if (got[at] === meant[at]) continue;
    const { kind } = regions.find(({ from, to }) => at >= from && at < to) ?? { kind: "bytes" };
    if (isNaNAt[kind](left, at) && isNaNAt[kind](right, at)) continue;
    const hex = (bytes: Uint8Array) =>
      [...bytes.subarray(at & ~3, (at & ~3) + 4)].map((b) => b.toString(16).padStart(2, "0"));
    return `byte ${at} (${kind}): got ${hex(got).join(" ")}, expected ${hex(meant).join(" ")}`;
  }
  return undefined;
}
