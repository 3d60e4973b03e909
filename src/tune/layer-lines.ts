// The part of a GPU's tune file about layers: the time of a token if each layer is one dispatch (backends/webgpu/layers.ts), for each
// number of workgroups that was tried, beside a dispatch for each op. Part of tune-file.ts.
//
//   layers 5e1f0c2a use=176x256 bytes=29736960 contexts=16,512 revision=1 noise=0.004
//   dispatch apart  641.2 660.1
//   dispatch 176x256  497.0 512.3
//   dispatch 264x256  gave-up
// The first line names the shape of a model's layers (layer-shape.ts), the dispatch that is used for them, the bytes of a layer and the
// revision of the kernels. A dispatch line has the numbers of workgroups and lanes ("2": as many lanes as its kernels have), then the
// microseconds of a token after each of the two contexts, or why it was not measured.

/** Why a dispatch has no times, by its word in the file. */
export const layerRefusals = {
  "gave-up": "its workgroups could not wait for each other",
  untried: "fewer workgroups could not wait for each other",
  "not-merged": "the kernels of a layer do not fit into one",
  refused: "the GPU refused its kernels",
  "other-bits": "its results had other bits",
} as const;

export type LayerRefusal = keyof typeof layerRefusals;

/** Microseconds of a token after the shorter and the longer context. */
export type ContextTimes = readonly [number, number];

export interface TunedDispatch {
  /** Workgroups; 0: each op has its own dispatch. */
  readonly groups: number;
  /** Lanes of a workgroup; undefined: as its kernels have. */
  readonly lanes?: number;
  /** Measured times, or the reason for refusal. */
  readonly result: ContextTimes | LayerRefusal;
}

/** Measurements for models whose layers have one shape. */
export interface TunedLayers {
  readonly shape: string;
  /** The name of the dispatch that is used: the fastest, where it was confirmed to be faster than each op in its own. */
  readonly use: string;
  /** Bytes of a layer's weights. */
  readonly bytes: number;
  /** Tokens before the one that is timed. */
  readonly contexts: readonly [number, number];
  readonly revision: number;
  /** The difference between two times of the same kernels, as a fraction. */
  readonly noise?: number;
  readonly dispatches: readonly TunedDispatch[];
}

/** "apart", "176x256", "2". */
export function dispatchName({ groups, lanes }: Pick<TunedDispatch, "groups" | "lanes">): string {
  if (groups === 0) return "apart";
  return lanes === undefined ? String(groups) : `${groups}x${lanes}`;
}

export function layersText(layers: TunedLayers): string[] {
  const { shape, use, bytes, contexts, revision, noise, dispatches } = layers;
  const measured = noise === undefined ? "" : ` noise=${noise.toFixed(3)}`;
  return [
    `layers ${shape} use=${use} bytes=${Math.round(bytes)} contexts=${contexts.join(",")} revision=${revision}${measured}`,
    ...dispatches.map((one) => {
      const { result } = one;
      const text =
        typeof result === "string" ? result : result.map((us) => us.toFixed(1)).join(" ");
      return `dispatch ${dispatchName(one)}  ${text}`;
    }),
  ];
}

const LAYERS =
  /^layers ([0-9a-f]{8}) use=(apart|\d+(?:x\d+)?) bytes=(\d{1,15}) contexts=(\d{1,6}),(\d{1,6}) revision=(\d{1,6})(?: noise=(\d{1,3}(?:\.\d+)?))?$/;

/** Without its dispatches; undefined: the line is not one. */
export function parseLayers(line: string): Omit<TunedLayers, "dispatches"> | undefined {
  const match = LAYERS.exec(line);
  if (!match) return undefined;
  const [bytes, short, long, revision] = match.slice(3, 7).map(Number);
  return {
    ...{ shape: match[1]!, use: match[2]!, bytes: bytes! },
    ...{ contexts: [short!, long!], revision: revision! },
    ...(match[7] !== undefined && { noise: Number(match[7]) }),
  };
}

const DISPATCH = /^dispatch (?:apart|([1-9]\d{0,3})(?:x(\d{1,4}))?) +(?:(\S+) (\S+)|([a-z-]+))$/;

/** The form of a dispatch's line. */
export const dispatchForm: string = `"dispatch apart|GROUPS[xLANES] US US" or one of ${Object.keys(layerRefusals).join(", ")}`;

/** undefined: the line is not one. */
export function parseDispatch(line: string): TunedDispatch | undefined {
  const match = DISPATCH.exec(line);
  if (!match) return undefined;
  const [, groups, lanes, short, long, word] = match;
  const result = word === undefined ? timesOf(short!, long!) : refusalOf(word);
  if (!result || lanes === "0") return undefined;
  return { groups: Number(groups ?? 0), ...(lanes && { lanes: Number(lanes) }), result };
}

function refusalOf(word: string): LayerRefusal | undefined {
  return Object.hasOwn(layerRefusals, word) ? (word as LayerRefusal) : undefined;
}

function timesOf(short: string, long: string): ContextTimes | undefined {
  const isTime = (text: string): boolean => /^\d{1,12}(\.\d+)?$/.test(text);
  return isTime(short) && isTime(long) ? [Number(short), Number(long)] : undefined;
}
