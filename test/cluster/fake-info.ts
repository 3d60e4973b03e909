// The facts of a model that nobody has: for workers that compute nothing.

import type { ModelInfo } from "../../src/index.ts";

export const fakeInfo = {
  ...{ name: "fake", architecture: "llama", parameters: 1, weightType: "f32", weightBytes: 4 },
  ...{ vocabSize: 2, contextSize: 8, cacheTokens: 8, trainedContext: 8 },
  ...{ hasChatTemplate: false, generates: true, backend: {} },
} as unknown as ModelInfo;
