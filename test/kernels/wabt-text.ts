// What wabt must be told to read our modules.

export const wabtFeatures = {
  simd: true,
  relaxed_simd: true,
  threads: true,
  memory64: true,
  sat_float_to_int: true,
} as const;
