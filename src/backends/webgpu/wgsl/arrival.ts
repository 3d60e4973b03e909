// How the text of a kernel gets values that other workgroups of the same dispatch compute. A kernel by itself needs nothing of this: all
// values that it reads were written by earlier dispatches. In a layer kernel (layer.ts) they come from workgroups that run at the same time.

export interface Arrival {
  /** Chunks of weights that a lane may load before the barrier, where its registers hold them: there is time to wait for them. */
  readonly ahead: number;
  /** WGSL between what can be loaded before and the first load of such a value; the whole workgroup executes it. */
  readonly barrier: string;
  /** Declares `name` of `type` without a value, where loads() assigns it later; undefined: it is declared where it is loaded. */
  readonly declare?: (name: string, type: string) => string;
  /** WGSL that assigns values to variables, from loads of such values: until all of them have arrived. */
  loads(text: string): string;
  /** WGSL whose effect lasts, in a kernel whose workgroups each do the work of several. */
  once(text: string): string;
}

export const noArrival: Arrival = {
  ahead: 0,
  barrier: "",
  loads: (text) => text,
  once: (text) => text,
};

/** With `waitForOthers`, `arrived` and `isFirst` of layer.ts. */
export const layerArrival: Arrival = {
  ahead: 3,
  barrier: "waitForOthers(lane);",
  declare: (name, type) => `var ${name} = ${type}();`,
  loads: (text) => `loop {
    ${text}
    if (arrived()) { break; }
  }`,
  once: (text) => `if (isFirst) {
  ${text}
  }`,
};
