// The WGSL by which a kernel gets values that other workgroups of the same dispatch compute. A kernel by itself needs nothing of this:
// all values that it reads were written by earlier dispatches. In a layer kernel (layer.ts) they come from workgroups that run at the same
// time.

export interface Arrival {
  /** Workgroups each do the work of several, in rounds; loads before the barrier have time to arrive. */
  readonly inRounds: boolean;
  /** WGSL between the loads that can come before and the first load of such a value; the whole workgroup executes it. */
  readonly barrier: string;
  /** Declares `name` of `type` without a value, where loads() assigns it later; undefined: it is declared where it is loaded. */
  readonly declare?: (name: string, type: string) => string;
  /** WGSL that assigns values to variables, from loads of such values: until all of them have arrived. */
  loads(text: string): string;
}

export const noArrival: Arrival = {
  inRounds: false,
  barrier: "",
  loads: (text) => text,
};

/** With `waitForOthers` and `arrived` of layer.ts. */
export const layerArrival: Arrival = {
  inRounds: true,
  barrier: "waitForOthers(lane);",
  declare: (name, type) => `var ${name} = ${type}();`,
  loads: (text) => `loop {
    ${text}
    if (arrived()) { break; }
  }`,
};
