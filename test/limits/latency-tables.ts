// The numbers of a published set of theoretical tables: the Qwen1.5 family on an RTX 4090, for one user. They are what
// tables.test.ts computes again. Model numbers are in billions of 2^30, KV sizes in millions of 2^20, times in ms.

/** Rows of the tables. "no GQA": the same model with as many key and value heads as query heads. */
export const sizes = [
  "0.5B",
  "1.8B",
  "4B",
  "7B",
  "14B",
  "32B no GQA",
  "32B",
  "72B",
  "110B no GQA",
  "110B",
] as const;
export type Size = (typeof sizes)[number];

type Table<Cells extends readonly unknown[]> = Readonly<Record<Size, Cells>>;

/** vocab, hidden, layers, intermediate, groups; parameters of layers, head, active, total. */
export const parameterTable: Table<
  readonly [number, number, number, number, number, string, string, string, string]
> = {
  "0.5B": [151936, 1024, 24, 2816, 1, "0.29", "0.14", "0.43", "0.58"],
  "1.8B": [151936, 2048, 24, 5504, 1, "1.13", "0.29", "1.42", "1.71"],
  "4B": [151936, 2560, 40, 6912, 1, "2.95", "0.36", "3.32", "3.68"],
  "7B": [151936, 4096, 32, 11008, 1, "6.03", "0.58", "6.61", "7.19"],
  "14B": [152064, 5120, 40, 13696, 1, "11.74", "0.73", "12.47", "13.19"],
  "32B no GQA": [152064, 5120, 64, 27392, 1, "31.33", "0.73", "32.05", "32.78"],
  "32B": [152064, 5120, 64, 27392, 5, "28.83", "0.73", "29.55", "30.28"],
  "72B": [152064, 8192, 80, 24576, 1, "65.00", "1.16", "66.16", "67.32"],
  "110B no GQA": [152064, 8192, 80, 24576, 1, "110.00", "1.16", "111.16", "112.32"],
  "110B": [152064, 8192, 80, 49152, 8, "101.25", "1.16", "102.41", "103.57"],
};

/** KV parameters per token. */
export const kvTable: Table<readonly [number]> = {
  "0.5B": [0.046875],
  "1.8B": [0.09375],
  "4B": [0.1953125],
  "7B": [0.25],
  "14B": [0.390625],
  "32B no GQA": [0.625],
  "32B": [0.125],
  "72B": [1.25],
  "110B no GQA": [1.25],
  "110B": [0.125],
};

/** Active parameters as the table of what fits repeats them, rounded in its own way. */
export const activeAgain: Table<readonly [string]> = {
  "0.5B": ["0.43"],
  "1.8B": ["1.42"],
  "4B": ["3.32"],
  "7B": ["6.61"],
  "14B": ["12.6"],
  "32B no GQA": ["29.6"],
  "32B": ["29.6"],
  "72B": ["66"],
  "110B no GQA": ["102"],
  "110B": ["102"],
};

/** Tokens that fit in 24 GiB; undefined: the weights alone do not. Columns: fitWidths. */
export const fitWidths = [
  { weights: 16, kv: 16 },
  { weights: 8, kv: 16 },
  { weights: 4, kv: 16 },
  { weights: 6, kv: 16 },
  { weights: 4, kv: 8 },
] as const;
const oom = undefined;
export const fitTable: Table<readonly (number | undefined)[]> = {
  "0.5B": [252705, 257424, 259784, 258604, 519568],
  "1.8B": [115553, 123312, 127192, 125252, 254384],
  "4B": [45525, 54220, 58567, 56393, 117134],
  "7B": [22072, 35612, 42382, 38997, 84764],
  "14B": [oom, 15114, 23285, 19199, 46571],
  "32B no GQA": [oom, oom, 6531, oom, 13062],
  "32B": [oom, oom, 37778, 7515, 75556],
  "72B": [oom, oom, oom, oom, oom],
  "110B no GQA": [oom, oom, oom, oom, oom],
  "110B": [oom, oom, oom, oom, oom],
};

/** Turning points at w16, w8, w4 (kv16), each rough and exact; []: none. The last two columns are w4 rough and exact. */
export const turningTable: Table<readonly (readonly number[])[]> = {
  "0.5B": [[], [], [55, 170], [], [23, 203], [44, 106]],
  "1.8B": [[127, 245], [], [48, 325], [68, 228], [22, 351], [29, 268]],
  "4B": [[116, 302], [], [47, 371], [55, 317], [22, 396], [25, 347]],
  "7B": [
    [99, 553],
    [113, 481],
    [45, 607],
    [50, 544],
    [21, 630],
    [23, 571],
  ],
  "14B": [
    [95, 692],
    [103, 638],
    [44, 743],
    [47, 694],
    [21, 766],
    [22, 718],
  ],
  "32B no GQA": [
    [90, 1175],
    [92, 1144],
    [43, 1222],
    [44, 1192],
    [21, 1244],
    [21, 1215],
  ],
  "32B": [
    [85, 6051],
    [87, 5898],
    [42, 6094],
    [43, 5942],
    [21, 6115],
    [21, 5964],
  ],
  "72B": [
    [90, 1216],
    [92, 1191],
    [43, 1263],
    [44, 1239],
    [21, 1285],
    [21, 1262],
  ],
  "110B no GQA": [
    [87, 2108],
    [88, 2084],
    [42, 2153],
    [43, 2130],
    [21, 2175],
    [21, 2151],
  ],
  "110B": [
    [84, 17602],
    [85, 17400],
    [42, 17644],
    [42, 17443],
    [20, 17665],
    [21, 17464],
  ],
};

/** W, the same at every weight width, and B at w16, w8, w4. */
export const decodeTable: Table<readonly [number, string, string, string]> = {
  "0.5B": [11010, "0.86", "0.43", "0.21"],
  "1.8B": [5505, "2.82", "1.41", "0.70"],
  "4B": [2642, "6.58", "3.29", "1.65"],
  "7B": [2064, "13.12", "6.56", "3.28"],
  "14B": [1321, "24.74", "12.37", "6.19"],
  "32B no GQA": [826, "63.60", "31.80", "15.90"],
  "32B": [4129, "58.64", "29.32", "14.66"],
  "72B": [413, "131.28", "65.64", "32.82"],
  "110B no GQA": [413, "220.56", "110.28", "55.14"],
  "110B": [3303, "203.20", "101.60", "50.80"],
};

/** Memory of bfloat16 weights in GiB, and the size of the published files in GB. */
export const storedTable: Readonly<Partial<Record<Size, readonly [string, number]>>> = {
  "0.5B": ["1.15", 1.24],
  "1.8B": ["3.42", 3.67],
  "4B": ["7.36", 7.9],
  "7B": ["14.38", 15.45],
  "14B": ["26.39", 28.34],
  "32B": ["60.56", 65.04],
  "72B": ["134.64", 144.47],
  "110B": ["207.14", 222.39],
};

type Small = "0.5B" | "1.8B" | "4B" | "7B";

/** First token after prompts of these lengths, bfloat16: measured, computed, and the share in percent. */
export const prefillLengths = [25, 100, 200, 300, 400, 500] as const;
export const prefillTable: Readonly<
  Record<
    Small,
    { measured: readonly number[]; computed: readonly string[]; percent: readonly number[] }
  >
> = {
  "0.5B": {
    measured: [6.12, 6.17, 6.83, 7.31, 8.03, 8.74],
    computed: ["0.26", "1.03", "2.07", "3.11", "4.17", "5.25"],
    percent: [4, 17, 30, 43, 52, 60],
  },
  "1.8B": {
    measured: [7.15, 7.79, 10, 12.68, 15.61, 16.31],
    computed: ["0.84", "3.37", "6.76", "10.18", "13.62", "17.07"],
    percent: [12, 43, 68, 80, 87, 105],
  },
  "4B": {
    measured: [13.6, 14.56, 20.29, 28.76, 35.82, 37.52],
    computed: ["1.96", "7.87", "15.78", "23.74", "31.74", "39.79"],
    percent: [14, 54, 78, 83, 89, 106],
  },
  "7B": {
    measured: [21.01, 23.18, 29.98, 46.93, 52.34, 61.02],
    computed: ["3.91", "15.67", "31.39", "47.17", "63.01", "78.91"],
    percent: [19, 68, 105, 101, 120, 129],
  },
};

/** Time until the n-th token, bfloat16: computed, measured, and the share in percent; undefined: did not fit. */
export const generationLengths = [2048, 4096, 6144, 8192, 10240, 12288, 14336, 16384] as const;
export const generationTable: Readonly<
  Record<
    Small,
    {
      computed: readonly number[];
      measured: readonly (number | undefined)[];
      percent: readonly (number | undefined)[];
    }
  >
> = {
  "0.5B": {
    computed: [2698, 6185, 10435, 15446, 21220, 27755, 35052, 43111],
    measured: [12100, 24265, 36481, 48889, 62012, 76313, 91938, 109417],
    percent: [22, 25, 29, 32, 34, 36, 38, 39],
  },
  "1.8B": {
    computed: [7631, 16868, 27629, 39914, 53722, 69054, 85911, 104290],
    measured: [13460, 29493, 47919, 68936, 93109, 120300, 150521, 183629],
    percent: [57, 57, 58, 58, 58, 57, 57, 57],
  },
  "4B": {
    computed: [16361, 36073, 58959, 85020, 114256, 146666, 182251, 221010],
    measured: [26769, 58778, 95816, 139449, 189314, 245423, 307444, 375503],
    percent: [61, 61, 62, 61, 60, 60, 59, 59],
  },
  "7B": {
    computed: [30909, 66225, 105604, 149047, 196554, 248124, 303757, 363454],
    measured: [40957, 88720, oom, oom, oom, oom, oom, oom],
    percent: [75, 75, oom, oom, oom, oom, oom, oom],
  },
};

/** Operations per byte that are quoted for three devices. */
export const intensities = [
  { device: "ryzen-7950x", teraops: 2.735, gigabytes: 67, quoted: 40 },
  { device: "rtx4090", teraops: 83, gigabytes: 1008, quoted: 82 },
  { device: "h100-sxm", teraops: 494, gigabytes: 3350, quoted: 147 },
  { device: "h100-sxm", teraops: 1979, gigabytes: 3350, quoted: 590 },
] as const;
