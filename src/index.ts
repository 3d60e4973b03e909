// The public API, explicitly. What is not exported here is not public.

export type * from "./api.ts";
export type { ErrorCode, FormatFacts } from "./base/errors.ts";
export {
  AbortedError,
  ContextError,
  DisposedError,
  FormatError,
  HangError,
  LanternError,
  MemoryError,
  ModelError,
  RestartingError,
  SourceError,
  UsageError,
  WorkerError,
} from "./base/errors.ts";
export { benchMatmul } from "./bench.ts";
export type { ByteSink, ConvertOptions, ConvertResult, ConvertType } from "./convert.ts";
export { convert } from "./convert.ts";
export { type GpuJson, gpuInfo, gpuMeasurement, gpuMeasurementJson, rememberedGpu } from "./gpu.ts";
export type { Device } from "./limits/device.ts";
export type { GpuMeasurement } from "./limits/gpu-device.ts";
export type { LimitsReport } from "./limits/report.ts";
export type { LimitsNames, LimitsOptions, SpeculationOptions } from "./limits-report.ts";
export { limits, limitsNames, limitsPicture } from "./limits-report.ts";
export { machineLimits, machineMeasurement, measuredLimits, rememberedMachine } from "./machine.ts";
export type { FitOptions, FitQuestion, ModelFit, ShareBasis } from "./model-fit.ts";
export { modelFits } from "./model-fit.ts";
export { machineCodeInfo } from "./native.ts";
export { inspect, open, openTokenizer } from "./open.ts";
export type {
  BaseComparison,
  Estimate,
  PerplexityOptions,
  PerplexityProgress,
  PerplexityResult,
} from "./perplexity.ts";
export { perplexity } from "./perplexity.ts";
export type {
  ImatrixOptions,
  ImatrixResult,
  QuantizedTensor,
  QuantizeOptions,
  QuantizeProgress,
  QuantizeResult,
} from "./quantize.ts";
export { imatrix, quantize, quantizeTypes } from "./quantize.ts";
export type { CompareQuantizedOptions, QuantizedComparison } from "./quantize-report.ts";
export { compareQuantized } from "./quantize-report.ts";
export { rememberSpeed, type SpeedRecord } from "./speeds.ts";
export type { TuneAnalysis } from "./tune/analyze.ts";
export type { BackendCrossing } from "./tune/cross-backends.ts";
export type { TuneFile } from "./tune/tune-file.ts";
export type { TuneOptions, TuneResult, TuneTestOptions, TuneTestPoint } from "./tune.ts";
export {
  analyzeTune,
  compareTunes,
  readTune,
  rememberedGpuTune,
  rememberedTune,
  rememberTune,
  testTune,
  tune,
  tuneSvg,
  tuneText,
  untunedTypes,
} from "./tune.ts";
export type {
  BackendVerification,
  Difference,
  LogitsDifference,
  OpDifference,
  ValueDifference,
  Verification,
  VerifyOptions,
} from "./verify.ts";
export { verify } from "./verify.ts";
