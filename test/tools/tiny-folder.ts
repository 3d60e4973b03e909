// Small Hugging Face folders with random weights, in memory: every architecture that can be converted, with the parts of
// a configuration that matter there. What they say is nonsense, but the same nonsense in every engine.

import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { byteToChar } from "../../src/tokenizers/byte-level.ts";
import { Random } from "../support/random.ts";
import { jsonFile, safetensorsOf } from "./safetensors-files.ts";

export { jsonFile } from "./safetensors-files.ts";

const usual = { hidden: 64, heads: 4, kvHeads: 2, headDim: 16, feedForward: 96, layers: 2 };

export interface FolderOptions {
  modelType?: "llama" | "mistral" | "qwen2" | "qwen3" | "mixtral" | "qwen2_moe" | "qwen3_moe";
  /** Of a mixture: a tensor for each expert, or one for all, gate and up together. */
  experts?: "each" | "fused";
  /** safetensors' name of the element type. */
  type?: "F32" | "F16" | "BF16";
  tied?: boolean;
  /** Into so many .safetensors files with an index. */
  shards?: number;
  tokenizer?: "byte-level" | "byte-fallback";
  config?: Record<string, unknown>;
  tokenizerConfig?: Record<string, unknown>;
  tokenizerJson?: Record<string, unknown>;
  size?: Partial<typeof usual>;
  /** Changes a tensor's values, by its name in the folder. */
  change?: (name: string, values: Float32Array) => void;
  /** Rows of the embedding beyond the vocabulary. */
  padding?: number;
}

export type Files = Record<string, Uint8Array<ArrayBuffer>>;

export function tinyFolder(options: FolderOptions = {}): Files {
  const { modelType = "llama", tokenizer = "byte-level" } = options;
  const size = { ...usual, ...options.size };
  const json = { ...tokenizers[tokenizer](), ...options.tokenizerJson };
  const vocab = Object.keys((json.model as { vocab: object }).vocab).length;
  const rows = vocab + (options.padding ?? 0);
  return {
    "config.json": jsonFile({
      model_type: modelType,
      num_hidden_layers: size.layers,
      hidden_size: size.hidden,
      intermediate_size: size.feedForward,
      num_attention_heads: size.heads,
      num_key_value_heads: size.kvHeads,
      head_dim: size.headDim,
      rms_norm_eps: 1e-5,
      max_position_embeddings: 256,
      rope_theta: 10000,
      vocab_size: rows,
      tie_word_embeddings: options.tied ?? false,
      bos_token_id: 1,
      eos_token_id: 2,
      ...mixtureConfig(modelType),
      ...options.config,
    }),
    "tokenizer.json": jsonFile(json),
    "tokenizer_config.json": jsonFile({
      bos_token: tokenizer === "byte-level" ? "<|im_start|>" : "<s>",
      eos_token: tokenizer === "byte-level" ? "<|im_end|>" : "</s>",
      chat_template: "{% for m in messages %}{{ m.content }}{% endfor %}",
      ...options.tokenizerConfig,
    }),
    ...weightFiles(shapesOf(modelType, rows, options), options),
  };
}

/** As open() and convert() take them. */
export function asFiles(files: Files): File[] {
  return Object.entries(files).map(([name, bytes]) => new File([bytes], name));
}

function shapesOf(modelType: string, rows: number, options: FolderOptions): Map<string, number[]> {
  const { hidden, heads, kvHeads, headDim, layers, feedForward } = { ...usual, ...options.size };
  const shapes = new Map<string, number[]>([["model.embed_tokens.weight", [rows, hidden]]]);
  for (let i = 0; i < layers; i++) {
    const layer = `model.layers.${i}.`;
    const add = (name: string, ...shape: number[]) => void shapes.set(layer + name, shape);
    add("input_layernorm.weight", hidden);
    add("self_attn.q_proj.weight", heads * headDim, hidden);
    add("self_attn.k_proj.weight", kvHeads * headDim, hidden);
    add("self_attn.v_proj.weight", kvHeads * headDim, hidden);
    add("self_attn.o_proj.weight", hidden, heads * headDim);
    if (modelType.startsWith("qwen2")) {
      add("self_attn.q_proj.bias", heads * headDim);
      add("self_attn.k_proj.bias", kvHeads * headDim);
      add("self_attn.v_proj.bias", kvHeads * headDim);
    }
    if (modelType.startsWith("qwen3")) {
      add("self_attn.q_norm.weight", headDim);
      add("self_attn.k_norm.weight", headDim);
    }
    add("post_attention_layernorm.weight", hidden);
    if (modelType === "mixtral" || modelType.endsWith("_moe")) {
      for (const [name, shape] of expertShapes(modelType, hidden, options)) add(name, ...shape);
      continue;
    }
    add("mlp.gate_proj.weight", feedForward, hidden);
    add("mlp.up_proj.weight", feedForward, hidden);
    add("mlp.down_proj.weight", hidden, feedForward);
  }
  shapes.set("model.norm.weight", [hidden]);
  if (!options.tied) shapes.set("lm_head.weight", [rows, hidden]);
  return shapes;
}

/** Of the folders that are mixtures: experts, those of a token, values between the matrices of one. */
export const mixture = { experts: 4, used: 2, feedForward: 32, shared: 48 };

function expertShapes(
  modelType: string,
  hidden: number,
  options: FolderOptions,
): [name: string, shape: number[]][] {
  const { experts, feedForward, shared } = mixture;
  const [up, down] = [
    [feedForward, hidden],
    [hidden, feedForward],
  ];
  const isMixtral = modelType === "mixtral";
  const stem = isMixtral ? "block_sparse_moe" : "mlp";
  const names = isMixtral ? ["w1", "w3", "w2"] : ["gate_proj", "up_proj", "down_proj"];
  const each = Array.from({ length: experts }, (_, expert) =>
    names.map((name, i): [string, number[]] => [
      `${stem}.experts.${expert}.${name}.weight`,
      i < 2 ? up! : down!,
    ]),
  );
  const fused: [string, number[]][] = [
    [`${stem}.experts.gate_up_proj`, [experts, 2 * feedForward, hidden]],
    [`${stem}.experts.down_proj`, [experts, hidden, feedForward]],
  ];
  const ofShared: [string, number[]][] = [
    ["mlp.shared_expert.gate_proj.weight", [shared, hidden]],
    ["mlp.shared_expert.up_proj.weight", [shared, hidden]],
    ["mlp.shared_expert.down_proj.weight", [hidden, shared]],
    ["mlp.shared_expert_gate.weight", [1, hidden]],
  ];
  return [
    [`${stem}.gate.weight`, [experts, hidden]],
    ...(options.experts === "fused" ? fused : each.flat()),
    ...(modelType === "qwen2_moe" ? ofShared : []),
  ];
}

/** What a mixture's config.json has beside the usual. */
function mixtureConfig(modelType: string): Record<string, number> {
  const { experts, used, feedForward, shared } = mixture;
  if (modelType === "mixtral") {
    return {
      num_local_experts: experts,
      num_experts_per_tok: used,
      intermediate_size: feedForward,
    };
  }
  if (!modelType.endsWith("_moe")) return {};
  return {
    num_experts: experts,
    num_experts_per_tok: used,
    moe_intermediate_size: feedForward,
    ...(modelType === "qwen2_moe" && { shared_expert_intermediate_size: shared }),
  };
}

function weightFiles(shapes: Map<string, number[]>, options: FolderOptions): Files {
  const { type = "F32", shards = 1, change } = options;
  const random = new Random(7);
  const tensors = [...shapes].map(([name, shape]) => {
    const center = name.includes("norm") ? 1 : 0;
    const count = shape.reduce((a, b) => a * b, 1);
    const values = Float32Array.from({ length: count }, () => center + 0.2 * random.normal());
    change?.(name, values);
    return { name, shape, bytes: encode(values, type) };
  });
  if (shards === 1) return { "model.safetensors": safetensorsOf(tensors, type) };
  const per = Math.ceil(tensors.length / shards);
  const files: Files = {};
  const weightMap: Record<string, string> = {};
  for (let i = 0; i < shards; i++) {
    const part = tensors.slice(i * per, (i + 1) * per);
    const digits = (n: number) => String(n).padStart(5, "0");
    const file = `model-${digits(i + 1)}-of-${digits(shards)}.safetensors`;
    files[file] = safetensorsOf(part, type);
    for (const { name } of part) weightMap[name] = file;
  }
  files["model.safetensors.index.json"] = jsonFile({ weight_map: weightMap });
  return files;
}

function encode(values: Float32Array, type: string): Uint8Array<ArrayBuffer> {
  const dtype = dtypeByName(type)!;
  const bytes = new Uint8Array(bytesFor(dtype, values.length));
  dtype.quantize!(values, 0, bytes, 0, values.length);
  return bytes;
}

const merges = ["t h", "th e", "i n", "a n", "an d", "o n"];

function addedTokens(texts: readonly string[]): object[] {
  const flags = { lstrip: false, rstrip: false, normalized: false, single_word: false };
  return texts.map((content, id) => ({ id, content, special: true, ...flags }));
}

function vocabOf(texts: readonly string[]): Record<string, number> {
  return Object.fromEntries(texts.map((text, id) => [text, id]));
}

const tokenizers: Record<"byte-level" | "byte-fallback", () => Record<string, unknown>> = {
  "byte-level": () => {
    const special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    const all = [...merges, "Ġ the", "Ġ a"];
    const merged = all.map((merge) => merge.replace(" ", ""));
    return {
      added_tokens: addedTokens(special),
      pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: true },
      decoder: { type: "ByteLevel" },
      model: { type: "BPE", vocab: vocabOf([...special, ...byteToChar, ...merged]), merges: all },
    };
  },
  "byte-fallback": () => {
    const special = ["<unk>", "<s>", "</s>"];
    const bytes = Array.from(
      { length: 256 },
      (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`,
    );
    const letters = [..."▁abcdefghijklmnopqrstuvwxyz"];
    const all = [...merges, "▁ the", "▁ a"];
    const merged = all.map((merge) => merge.replace(" ", ""));
    return {
      added_tokens: addedTokens(special),
      normalizer: {
        type: "Sequence",
        normalizers: [
          { type: "Prepend", prepend: "▁" },
          { type: "Replace", pattern: { String: " " }, content: "▁" },
        ],
      },
      post_processor: {
        type: "TemplateProcessing",
        single: [{ SpecialToken: { id: "<s>" } }, { Sequence: { id: "A" } }],
        special_tokens: { "<s>": { id: "<s>", ids: [1], tokens: ["<s>"] } },
      },
      decoder: {
        type: "Sequence",
        decoders: [
          { type: "Replace", pattern: { String: "▁" }, content: " " },
          { type: "ByteFallback" },
          { type: "Fuse" },
          { type: "Strip", content: " ", start: 1, stop: 0 },
        ],
      },
      model: {
        type: "BPE",
        unk_token: "<unk>",
        byte_fallback: true,
        vocab: vocabOf([...special, ...bytes, ...letters, ...merged]),
        merges: all,
      },
    };
  },
};

const yarn = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 64 };
const llama3 = {
  rope_type: "llama3",
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 64,
};

/** Folders that llama.cpp has run, after conversion: convert-llama-cpp.test.ts does it again, data/ has the outcome. */
export const tinyFolders: readonly { name: string; options: FolderOptions }[] = [
  { name: "llama with llama3 rope", options: { config: { rope_scaling: llama3 } } },
  { name: "llama with yarn, tied", options: { tied: true, config: { rope_scaling: yarn } } },
  {
    name: "mistral with byte fallback",
    options: { modelType: "mistral", tokenizer: "byte-fallback" },
  },
  { name: "qwen2 in three files", options: { modelType: "qwen2", shards: 3 } },
  { name: "qwen3 with padding", options: { modelType: "qwen3", padding: 5 } },
];

export const tinyPrompt = "The cat and the in 42 dogs";
