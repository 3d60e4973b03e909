// The options of open(), a row each, in the order in which their flags are listed. Types that only their own code reads are "other":
// OpenOptions in src/api/api.ts has them.

import type { OptionRow, OptionsOf } from "./row.ts";

export const openTable = {
  /**
   * Context size in tokens, at most what the model was trained for; default: the trained size, or half of it and so on, until memory
   * has room for it (4096 where memory is not known).
   */
  contextSize: {
    type: "number",
    label: "context",
    flag: "-c, --ctx-size <n>",
    shortFlag: "-c",
    help: "size of the context, in tokens",
    usual: "the model's own, or as much of it as memory has room for",
    range: { integer: true, min: 1, max: 16777216 },
    none: 0,
  },
  /**
   * Other values of the file's metadata, as llama.cpp's --override-kv: "KEY=TYPE:VALUE" with the type int, float, bool or str. A key that
   * begins with a dot is the architecture's: ".rope.freq_base=float:1000000". Default: none.
   */
  overrideKv: {
    type: "texts",
    label: "metadata",
    help: "other values of the file's metadata",
    shortFlag: "--override-kv",
    most: 256,
    longest: 65_536,
  },
  /**
   * The most tokens of prompts in a batch while other generations write (default: what was measured, else a part of a batch): a smaller
   * number delays them less, a larger one computes prompts sooner.
   */
  batchTokens: {
    type: "number",
    label: "tokens in a batch",
    flag: "--ubatch-size <n>",
    otherFlag: "--batch-size <n>",
    help: "compute at most this many tokens of prompts in a batch while other answers are written (also: -ub; -b: the smaller one counts)",
    usual: "what was measured",
    range: { integer: true, min: 1, max: 1048576 },
  },
  /**
   * How many generations the KV cache has room for at once, each with a full context (default 1; fewer if memory is
   * short). Generations that do not fit beside the running ones wait.
   */
  parallel: {
    type: "number",
    label: "generations at once",
    help: "generations for which the KV cache has room",
    shortFlag: "--parallel",
    range: { integer: true, min: 1, max: 1024 },
    default: 1,
  },
  /**
   * Bytes of memory for copies of state that left the KV cache, and of disk for copies that outlast the process (default 0:
   * none; docs/use/cache.md). A prompt that begins like an earlier one computes only what is new.
   */
  cacheRamBytes: {
    type: "number",
    label: "memory for copies of state",
    help: "bytes of memory for copies of state",
    shortFlag: "--cache-ram",
    range: { integer: true, min: 0 },
  },
  cacheDiskBytes: {
    type: "number",
    label: "disk for copies of state",
    help: "bytes of disk for copies of state",
    shortFlag: "--cache-disk",
    range: { integer: true, min: 0 },
  },
  /** Where copies on disk lie (default: "state" in the cache folder). They hold conversations: only this user can read them. */
  cacheFolder: {
    type: "text",
    label: "folder of copies",
    help: "folder of the copies on disk",
    shortFlag: "--cache-folder",
  },
  kvType: {
    type: "other",
    label: "type of the KV cache",
    help: "type of the KV cache",
    shortFlag: "--cache-type",
  },
  weights: {
    type: "other",
    label: "weights",
    help: "the type in which matrices are held",
    shortFlag: "--weights",
  },
  /**
   * The most memory that the model may take, in bytes: weights, KV cache and working memory (default: what is free). Weights
   * beyond that stay in the file and are read for every batch (docs/use/memory.md).
   */
  ramBytes: {
    type: "number",
    label: "memory",
    flag: "--ram <size>",
    help: "the most memory that the model may take, as in 4G; weights beyond that are read from disk for every batch (docs/use/memory.md)",
    range: { integer: true, min: 1 },
    unit: "bytes",
  },
  /** false: all weights are in memory, and a model that does not fit is refused (default true). */
  mmap: {
    type: "boolean",
    label: "weights on disk",
    flag: "--mmap",
    help: "leave weights on disk that do not fit in memory (default)",
    noHelp: "refuse a model that does not fit in memory",
    default: true,
  },
  /** Compute threads; default: the machine's cores. */
  threads: {
    type: "number",
    label: "threads",
    flag: "-t, --threads <n>",
    help: "compute threads",
    usual: "all cores",
    range: { integer: true, min: 1, max: 256 },
    none: -1,
  },
  binding: {
    type: "other",
    label: "CPUs",
    help: "the CPUs that threads are bound to",
    shortFlag: "--cpu-mask",
  },
  /** Default: 4 if this machine can run machine code, otherwise 3. */
  level: {
    type: "choice",
    label: "opt level",
    flag: "--level <n>",
    help: "opt level; 1: plain TypeScript, 2: SIMD row by row, 3: SIMD with register tiles, 4: machine code with register tiles",
    usual: "4 where this machine can run it, else 3",
    values: [1, 2, 3, 4],
  },
  /** false: no machine code, the same as opt level 3 (default true; docs/inside/native.md). */
  native: {
    type: "boolean",
    label: "machine code",
    flag: "--no-native",
    help: "use WebAssembly instead of machine code, as with --level 3",
    default: true,
  },
  isa: {
    type: "other",
    label: "instruction set",
    help: "an instruction set of this processor",
    shortFlag: "--isa",
  },
  /** The backend: "cpu" (default), "webgpu" (a GPU; docs/use/gpu.md) or "reference" (plain TypeScript). */
  backend: {
    type: "text",
    label: "backend",
    flag: "--backend <name>",
    help: 'backend: cpu, webgpu (a GPU; see "lantern devices") or reference',
    usual: "cpu",
  },
  /**
   * How many layers are on the GPU, as llama.cpp's -ngl: the last ones, with the output counted as one; the rest are
   * on the processor. "all", or one more than the model has layers: everything. "auto": as many as GPU memory holds,
   * or none without a real GPU. A number without a GPU is a warning, and the processor computes them. Default: everything with
   * backend "webgpu", nothing otherwise; the command line's is "auto".
   */
  gpuLayers: {
    type: "number",
    label: "GPU layers",
    flag: "--gpu-layers <n>",
    help: "layers on the GPU, counted from the last, the output as one of them; all: every layer, auto: as many as fit (also: -ngl)",
    usual:
      "auto, with a real GPU, in commands that answer; 0 in those that measure; all with --backend webgpu",
    range: { integer: true, min: 0 },
    words: ["all", "auto"],
    flagWords: { "-1": "all" },
  },
  /**
   * Layers on a GPU compute the very bits that the processor would, so that the text is the same at every gpuLayers, also where two
   * tokens are all but equally likely (docs/use/gpu.md). On the processor alone nothing changes. Default: false, but where the GPU has some of
   * the layers, true if that was measured to cost less than 10 %, when a model of this kind is opened for the first time on this machine.
   */
  exact: {
    type: "boolean",
    label: "exact",
    flag: "--exact",
    help: "layers on the GPU compute the very bits of the processor: the same text at every -ngl (docs/use/gpu.md; default: where some layers are on the GPU and that is measured to cost less than 10 %)",
    noHelp: "layers on the GPU compute as fast as it can",
  },
  /**
   * Neurons of ReLU networks that are zero are not computed, and their weights not read: the same text, faster to generate where
   * most are zero, and slower to read a prompt (docs/use/sparse.md). On the processor, for Q4_0, Q8_0, the K types and floats. "auto" (default): where it is
   * measured to be faster, when the file is opened for the first time on this machine; files of a URL are not measured. "predict":
   * those are left out that predictors expect to be zero, which changes the text a little and is faster.
   */
  sparse: {
    type: "choice",
    label: "sparse",
    flag: "--sparse <when>",
    help: "leave out neurons of ReLU networks that are zero: the same text, faster to generate where most are, slower prompts; auto: where it is measured to be faster; predict: those that predictors expect to be zero, for a slightly different text (docs/use/sparse.md)",
    usual: "auto",
    values: [true, false, "auto", "predict"],
    flagWords: { on: true, off: false },
  },
  predictors: {
    type: "other",
    label: "predictors",
    help: "the file of predictors",
    shortFlag: "--predictors",
  },
  speculate: {
    type: "other",
    label: "speculation",
    help: "whether tokens are drafted",
    shortFlag: "--spec-type",
  },
  /**
   * Let the layer of the file that predicts further tokens (nextn, multi-token prediction) draft, where that is faster; the text is the
   * same. It computes on the processor and takes memory of its own; a file without one is refused (default false).
   */
  mtp: {
    type: "boolean",
    label: "mtp",
    flag: "--mtp",
    help: "let the layer of the file that predicts further tokens draft: the same text, sooner (docs/use/speculation.md)",
    default: false,
  },
  /**
   * What the GPU computes of a sequence, with all layers on the processor as well: "prompt" or "generation". "auto": what was
   * measured to be faster for this model (docs/use/tune.md), the cache's way from one to the other included. Default: the layers
   * decide (gpuLayers), which cannot be given as well.
   */
  gpuFor: {
    type: "choice",
    label: "what the GPU computes",
    flag: "--gpu-for <what>",
    help: "what the GPU computes, with all layers on the processor as well: prompts, generated tokens, or what was measured to be faster (auto)",
    values: ["prompt", "generation", "auto"],
  },
  /**
   * Once loaded, a GPU computes made-up batches, for at most about half a second, so that the first answers take no longer than later
   * ones (docs/use/gpu.md). Default: true. Not on adapters that compute on the processor, with a profile, and with expertSlots.
   */
  warmup: {
    type: "boolean",
    label: "warm-up",
    flag: "--warmup",
    help: "compute made-up batches when a GPU has loaded a model, so that the first answer takes no longer than others",
    noHelp: "do not: the model is loaded sooner",
    default: true,
  },
  overrideTensors: {
    type: "other",
    label: "places of tensors",
    help: "a list of tensors and their places",
    shortFlag: "--override-tensor",
  },
  /**
   * Layers, from the first on, whose experts are on the processor, while the rest of the layer is where gpuLayers puts it
   * (llama.cpp's --n-cpu-moe); "all": --cpu-moe. Default: 0. overrideTensors counts first.
   */
  cpuExperts: {
    type: "number",
    label: "experts on the processor",
    help: "layers whose experts are on the processor",
    shortFlag: "--n-cpu-moe",
    range: { integer: true, min: 0 },
    words: ["all"],
  },
  expertSlots: {
    type: "other",
    label: "expert slots",
    help: "experts of each layer in GPU memory, or their share",
    shortFlag: "--expert-slots",
  },
  /**
   * The share of the neurons of ReLU networks that is on the GPU, from 0.01 to 0.99; the others are on the processor, where `sparse` leaves
   * out those that are zero. The first neurons of each network are meant to be those that are open most often (docs/use/sparse.md). gpuLayers
   * says where the rest of a layer is. Default: where some layers would be on the GPU, hot neurons are there instead if that was measured to be
   * faster with its memory when this model was first loaded so on this machine; 0: neurons are where their layer is.
   */
  hotNeurons: {
    type: "number",
    label: "hot neurons",
    flag: "--hot-neurons <share>",
    help: "put a share of the neurons of a model with ReLU on the GPU, up to 0.99, and the others on the processor; lantern sparsify --order puts those first that are used most; without this flag where that was measured to be faster than layers on the GPU",
    range: { min: 0.01, max: 0.99, also: 0 },
  },
  /**
   * Whether the GPU computes prompts of the layers that are on the processor, with weights that it gets for each batch (llama.cpp's
   * --no-op-offload forbids it). true: batches of 32 tokens of a prompt and more. Default: from as many tokens on as were measured to be
   * clearly faster, when this model was first loaded so on this machine, or never (docs/use/gpu.md). Generated tokens stay on the processor.
   */
  opOffload: {
    type: "boolean",
    label: "prompts on the GPU",
    flag: "--op-offload",
    help: "let the GPU compute prompts of the layers that are on the processor, in batches of 32 tokens and more; without this flag where that was measured to be faster",
    noHelp: "compute them on the processor",
  },
  draftModel: {
    type: "other",
    label: "draft model",
    help: "a small model that drafts",
    shortFlag: "--model-draft",
  },
  /** Compute threads of the draft model; default: one where it is small (8 MB), otherwise as many as the model has. */
  draftThreads: {
    type: "number",
    label: "threads of the draft model",
    flag: "--threads-draft <n>",
    help: "compute threads of the draft model (also: -td)",
    usual: "1 up to 8 MB, else as --threads",
    range: { integer: true, min: 1, max: 256 },
    none: -1,
  },
  /** Layers of the draft model on the GPU, as gpuLayers; default: all where this model has some there, otherwise none. */
  draftGpuLayers: {
    type: "number",
    label: "GPU layers of the draft model",
    flag: "--gpu-layers-draft <n>",
    help: "layers of the draft model on the GPU (also: -ngld)",
    usual: "all if the model has some there, else 0",
    range: { integer: true, min: 0 },
    words: ["all", "auto"],
    flagWords: { "-1": "all" },
  },
  /**
   * When the engine's thread dies or hangs, start another and open the model there (default false: the model is
   * unusable from then on, and its methods say so). Work in progress is rejected with a WorkerError either way. After the GPU was
   * lost, the next request opens the model again, with or without this option; with it, that begins at once.
   */
  restart: { type: "boolean", label: "restart", help: "start a lost engine again", default: false },
  /**
   * Seconds without a sign of life after which the engine's thread counts as hung and is terminated (default 60; 0:
   * never).
   */
  hangSeconds: {
    type: "number",
    label: "seconds until a hang",
    help: "seconds without a sign of life",
    shortFlag: "--hang-timeout",
    note: "0: never",
    range: { min: 0 },
  },
  /** A built-in chat template by name (chatml, llama2, llama3, zephyr, command-r) or a Jinja source; default: the model's own. */
  chatTemplate: {
    type: "text",
    label: "chat template",
    help: "a chat template by name, or in Jinja",
    shortFlag: "--chat-template",
  },
  /**
   * Record where the time goes, for model.profile(). Costs less than 2% of the speed when on and nothing when off
   * (default).
   */
  profile: {
    type: "boolean",
    label: "profile",
    help: "record where the time goes",
    shortFlag: "--profile",
    default: false,
  },
  /** Use the kernels and threads that "lantern tune" found best on this machine, if it has run (default true). */
  tuned: {
    type: "boolean",
    label: "tuned",
    help: "use what was measured on this machine",
    default: true,
  },
  tuneFile: {
    type: "other",
    label: "tune file",
    help: "a file of measured times",
    shortFlag: "--tune-file",
  },
  explainTokens: {
    type: "other",
    label: "explained tokens",
    help: "numbers of tokens",
    shortFlag: "--tokens",
  },
  adapters: { type: "other", label: "adapters", help: "LoRA adapters", shortFlag: "--lora" },
} as const;

type Table = typeof openTable;
export type OpenName = keyof Table;

/** The rows for code that reads any of them. */
export const openRows: Readonly<Record<OpenName, OptionRow>> = openTable;

export type OpenRowOptions = OptionsOf<Table>;
