// WGSL by which neighbouring lanes of a workgroup exchange values: through subgroups where they are 32 lanes wide, through
// workgroup memory otherwise. Whole workgroups must execute it, in uniform control flow. Workgroups have one dimension, and
// subgroups are consecutive lanes.

/** How lanes exchange values. */
export interface Exchange {
  /** Extensions that a kernel must enable for it. */
  readonly enables: readonly string[];
  /** Workgroup memory, for `size` lanes. */
  declarations(size: number): string;
  /** `fn NAME(value: f32, lane: u32) -> f32` for teams of `width` lanes (a power of two, at most 32). */
  reduce(name: string, width: number, combine: Combine): string;
}

export type Combine = "sum" | "max";

const combined: Readonly<Record<Combine, (a: string, b: string) => string>> = {
  sum: (a, b) => `${a} + ${b}`,
  max: (a, b) => `max(${a}, ${b})`,
};

const bySubgroups: Exchange = {
  enables: ["subgroups"],
  declarations: () => "",
  reduce: (name, width, combine) => {
    const steps: string[] = [];
    for (let mask = 1; mask < width; mask *= 2) {
      steps.push(`all = ${combined[combine]("all", `subgroupShuffleXor(all, ${mask}u)`)};`);
    }
    return `
fn ${name}(value: f32, lane: u32) -> f32 {
  var all = value;
  ${steps.join("\n  ")}
  return all;
}`;
  },
};

/** Every lane of a team adds in the same order, so that all of them get the same number. */
const byMemory: Exchange = {
  enables: [],
  declarations: (size) => `
var<workgroup> exchanged: array<f32, ${size}>;`,
  reduce: (name, width, combine) => `
fn ${name}(value: f32, lane: u32) -> f32 {
  workgroupBarrier();
  exchanged[lane] = value;
  workgroupBarrier();
  let first = lane - lane % ${width}u;
  var all = exchanged[first];
  for (var i = 1u; i < ${width}u; i++) { all = ${combined[combine]("all", "exchanged[first + i]")}; }
  return all;
}`,
};

/** Lanes of a team, at most. */
export const TEAM = 32;

export function exchangeFor(subgroups: { min: number; max: number } | undefined): Exchange {
  return subgroups && subgroups.min >= TEAM ? bySubgroups : byMemory;
}
