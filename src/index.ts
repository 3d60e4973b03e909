// The public API. Everything that is not exported here is private.

export type { AnswerFormat, AnswerTool } from "./api/answer-format.ts";
export type * from "./api/api.ts";
export type { Device } from "./api/rates.ts";
export type { ErrorCode, FormatFacts, OptionFacts } from "./base/errors.ts";
export {
  AbortedError,
  AnswerError,
  ContextError,
  DeviceLostError,
  DeviceMemoryError,
  DisposedError,
  FormatError,
  HangError,
  LanternError,
  MemoryError,
  ModelError,
  OptionError,
  RestartingError,
  SourceError,
  TabClosedError,
  UsageError,
  WorkerError,
} from "./base/errors.ts";
export {
  asRendered,
  joined,
  type RenderedPrompt,
  trusted,
  words,
} from "./base/rendered-prompt.ts";
export { cosineSimilarity } from "./base/vectors.ts";
export {
  AnswerReader,
  type AnswerReaderOptions,
  type AnswerStart,
  promptEnd,
} from "./chat/answer/answer-reader.ts";
export {
  knowsTools,
  type ShownConversation,
  shownConversation,
} from "./chat/answer/generic.ts";
export { type ToolGrammarOptions, toolGrammar } from "./chat/answer/grammar/tool-grammar.ts";
export type { AnswerPart } from "./chat/answer/sink.ts";
export { type HeldType, heldTypes } from "./dtypes/held-types.ts";
export { defaultKvType, type KvType, type KvTypePair, kvTypes } from "./dtypes/kv-types.ts";
export { startGeneration } from "./engine/generation.ts";
export { schemaProblems } from "./engine/tools/schema-check.ts";
export type { GpuMeasurement } from "./limits/gpu-device.ts";
export type { LimitsReport } from "./limits/report.ts";
export type { Sla } from "./limits/serving.ts";
export type { MeasuredLoad, ServingOptions, ServingReport } from "./limits/serving-report.ts";
export type { ModelShape } from "./limits/shape.ts";
export {
  type GpuJson,
  gpuInfo,
  gpuMeasurement,
  gpuMeasurementJson,
  rememberedGpu,
} from "./machine/gpu.ts";
export {
  machineLimits,
  machineMeasurement,
  measuredLimits,
  rememberedMachine,
} from "./machine/machine.ts";
export { isaNames, machineCodeInfo } from "./machine/native.ts";
export { type ServedModel, storeServedLoads } from "./machine/served-loads.ts";
export { rememberSpeed, type SpeedRecord } from "./machine/speeds.ts";
export { embeddingPrefix } from "./models/embed-prefixes.ts";
export { type ArchitectureInfo, architectures } from "./models/table.ts";
export { open } from "./open.ts";
export { benchMatmul, matmulBenchShape, matmulTiles } from "./tools/bench/api.ts";
export type { StoredModelState, StoredState, StoredStateOptions } from "./tools/cache/api.ts";
export {
  clearStoredState,
  forgetStoredConversations,
  isStoredAs,
  storedState,
} from "./tools/cache/api.ts";
export type { ByteSink, ConvertOptions, ConvertResult, ConvertType } from "./tools/convert/api.ts";
export { convert } from "./tools/convert/api.ts";
export { inspect, openTokenizer } from "./tools/inspect/api.ts";
export type {
  LimitsNames,
  LimitsOptions,
  LimitsSource,
  OwnModel,
  SpeculationOptions,
} from "./tools/limits/api.ts";
export { limits, limitsNames, limitsPicture, meetsSla } from "./tools/limits/api.ts";
export type { FitOptions, FitQuestion, ModelFit, ShareBasis } from "./tools/limits/fit.ts";
export { modelFits } from "./tools/limits/fit.ts";
export type {
  BaseComparison,
  Estimate,
  PerplexityOptions,
  PerplexityProgress,
  PerplexityResult,
  QualityPoint,
} from "./tools/perplexity/api.ts";
export { perplexity, perplexityPicture } from "./tools/perplexity/api.ts";
export type {
  ImatrixOptions,
  ImatrixResult,
  QuantizedTensor,
  QuantizeOptions,
  QuantizeProgress,
  QuantizeResult,
} from "./tools/quantize/api.ts";
export { imatrix, quantize, quantizeTypes } from "./tools/quantize/api.ts";
export type { CompareQuantizedOptions, QuantizedComparison } from "./tools/quantize/report.ts";
export { compareQuantized } from "./tools/quantize/report.ts";
export type {
  OrderedLayer,
  OrderOptions,
  OrderResult,
  SparsifiedLayer,
  SparsifyOptions,
  SparsifyProgress,
  SparsifyResult,
} from "./tools/sparsify/api.ts";
export { orderNeurons, sparsify } from "./tools/sparsify/api.ts";
export type {
  BackendVerification,
  ChainedVerdict,
  Difference,
  LogitsDifference,
  OpDifference,
  ValueDifference,
  Verification,
  VerifyOptions,
} from "./tools/verify/api.ts";
export { verify } from "./tools/verify/api.ts";
export type { TuneAnalysis } from "./tune/analyze.ts";
export type { TuneOptions, TuneResult, TuneTestOptions, TuneTestPoint } from "./tune/api.ts";
export {
  analyzeTune,
  checkTune,
  compareTunes,
  correctedTune,
  isTunePostponed,
  postponeTune,
  readTune,
  rememberedGpuTune,
  rememberedTune,
  rememberTune,
  testTune,
  tune,
  tuneDeviceProfiles,
  tunePostponedUntil,
  tuneSvg,
  tuneText,
  untunedTypes,
} from "./tune/api.ts";
export type { BackendCrossing } from "./tune/cross-backends.ts";
export type { TuneFile, TuneProblem, TuneProfile } from "./tune/tune-file.ts";
