// Hugging Face folders: configuration to GGUF keys, tensor names, tied embeddings, tokens and templates.
// Held against: keys and names written here, from llama.cpp's converter.

import { describe, expect, test } from "vitest";
import { FormatError } from "../../src/base/errors.ts";
import { openHuggingFace } from "../../src/formats/huggingface.ts";
import { jsonBytes, memorySource, safetensorsOf } from "./support.ts";

const config = {
  model_type: "llama",
  num_hidden_layers: 1,
  hidden_size: 8,
  intermediate_size: 16,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  rms_norm_eps: 1e-5,
  max_position_embeddings: 64,
  rope_theta: 50000,
  vocab_size: 5,
  bos_token_id: 1,
  eos_token_id: [2, 3],
};

const layer = {
  "model.layers.0.input_layernorm.weight": [8],
  "model.layers.0.self_attn.q_proj.weight": [8, 8],
  "model.layers.0.self_attn.q_proj.bias": [8],
  "model.layers.0.self_attn.k_proj.weight": [4, 8],
  "model.layers.0.self_attn.v_proj.weight": [4, 8],
  "model.layers.0.self_attn.o_proj.weight": [8, 8],
  "model.layers.0.self_attn.q_norm.weight": [4],
  "model.layers.0.self_attn.k_norm.weight": [4],
  "model.layers.0.self_attn.rotary_emb.inv_freq": [2],
  "model.layers.0.post_attention_layernorm.weight": [8],
  "model.layers.0.mlp.gate_proj.weight": [16, 8],
  "model.layers.0.mlp.up_proj.weight": [16, 8],
  "model.layers.0.mlp.down_proj.weight": [8, 16],
};
const ends = {
  "model.embed_tokens.weight": [5, 8],
  "model.norm.weight": [8],
  "lm_head.weight": [5, 8],
};

interface Folder {
  config?: object;
  shapes?: Record<string, number[]>;
  more?: Record<string, Uint8Array>;
}

function folder({ config: change = {}, shapes = { ...ends, ...layer }, more = {} }: Folder = {}) {
  return memorySource({
    "config.json": jsonBytes({ ...config, ...change }),
    "tokenizer.json": jsonBytes({ added_tokens: [{ id: 4, content: "<|im_end|>" }] }),
    "model.safetensors": safetensorsOf(shapes),
    ...more,
  });
}

describe("hugging face tensors", () => {
  test("have GGUF's names; what has none keeps its own", async () => {
    const shapes = {
      ...ends,
      ...layer,
      "model.extra.thing": [2],
      "model.layers.0.odd.weight": [2],
    };
    const model = await openHuggingFace(folder({ shapes }));
    expect([...model.tensors.keys()]).toEqual([
      "token_embd.weight",
      "output_norm.weight",
      "output.weight",
      "blk.0.attn_norm.weight",
      "blk.0.attn_q.weight",
      "blk.0.attn_q.bias",
      "blk.0.attn_k.weight",
      "blk.0.attn_v.weight",
      "blk.0.attn_output.weight",
      "blk.0.attn_q_norm.weight",
      "blk.0.attn_k_norm.weight",
      "blk.0.ffn_norm.weight",
      "blk.0.ffn_gate.weight",
      "blk.0.ffn_up.weight",
      "blk.0.ffn_down.weight",
      "model.extra.thing",
      "model.layers.0.odd.weight",
    ]);
    for (const [name, tensor] of model.tensors) expect(tensor.name).toBe(name);
    expect(model.tensors.get("blk.0.ffn_down.weight")?.shape).toEqual([8, 16]);
    const bytes = new Uint8Array(2);
    await model.readTensor(model.tensors.get("token_embd.weight")!, bytes, 3);
    expect([...bytes]).toEqual([3, 4]);
  });

  const {
    "lm_head.weight": head,
    "model.embed_tokens.weight": embed,
    ...rest
  } = { ...ends, ...layer };
  test.each([
    ["only lm_head", { "lm_head.weight": head, ...rest }],
    ["only embed_tokens", { "model.embed_tokens.weight": embed, ...rest }],
    ["both", { "model.embed_tokens.weight": embed, "lm_head.weight": head, ...rest }],
  ])("a tied model that stores %s has an embedding and no output", async (_what, shapes) => {
    const model = await openHuggingFace(folder({ config: { tie_word_embeddings: true }, shapes }));
    expect(model.tensors.get("token_embd.weight")).toMatchObject({
      name: "token_embd.weight",
      shape: [5, 8],
      offset: model.tensors.get("token_embd.weight")!.offset,
    });
    expect(model.tensors.has("output.weight")).toBe(false);
  });

  test("two names for one tensor are refused", async () => {
    const shapes = { ...ends, "embed_tokens.weight": [5, 8] };
    const source = folder({ shapes });
    await expect(openHuggingFace(source)).rejects.toThrow("a second tensor for token_embd.weight");
    expect(source.count.open).toBe(0);
  });
});

describe("hugging face configuration", () => {
  test("becomes GGUF's keys", async () => {
    const { metadata } = await openHuggingFace(folder({ config: { head_dim: 4 } }));
    const numbers = {
      "llama.block_count": 1,
      "llama.embedding_length": 8,
      "llama.feed_forward_length": 16,
      "llama.attention.head_count": 2,
      "llama.attention.head_count_kv": 1,
      "llama.attention.key_length": 4,
      "llama.attention.value_length": 4,
      "llama.attention.layer_norm_rms_epsilon": Math.fround(1e-5),
      "llama.context_length": 64,
      "llama.rope.freq_base": 50000,
      "llama.vocab_size": 5,
      "tokenizer.ggml.bos_token_id": 1,
      "tokenizer.ggml.eos_token_id": 2,
    };
    for (const [key, value] of Object.entries(numbers))
      expect([key, metadata.number(key)]).toEqual([key, value]);
    expect(metadata.string("general.architecture")).toBe("llama");
    expect(metadata.string("lantern.rope.layout")).toBe("half");
    expect(metadata.numbers("lantern.eos_token_ids")).toEqual([2, 3]);
    expect(metadata.has("llama.rope.scaling.type")).toBe(false);
  });

  test.each([
    ["llama", "llama"],
    ["mistral", "llama"],
    ["qwen2", "qwen2"],
    ["qwen3", "qwen3"],
  ])("model_type %s is architecture %s", async (model_type, architecture) => {
    const { metadata } = await openHuggingFace(folder({ config: { model_type } }));
    expect(metadata.string("general.architecture")).toBe(architecture);
    expect(metadata.number(`${architecture}.block_count`)).toBe(1);
  });

  const scalings: [string, object, Record<string, string | number>][] = [
    [
      "linear, in the old form",
      { rope_scaling: { type: "linear", factor: 4 } },
      { type: "linear", factor: 4 },
    ],
    [
      "llama3",
      {
        rope_scaling: {
          rope_type: "llama3",
          factor: 32,
          low_freq_factor: 1,
          high_freq_factor: 4,
          original_max_position_embeddings: 8192,
        },
      },
      {
        type: "llama3",
        factor: 32,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_context_length: 8192,
      },
    ],
    [
      "yarn, in rope_parameters",
      {
        rope_parameters: {
          rope_type: "yarn",
          factor: 4,
          rope_theta: 50000,
          original_max_position_embeddings: 32,
          beta_fast: 16,
          beta_slow: 2,
          attn_factor: 0.5,
        },
      },
      {
        type: "yarn",
        factor: 4,
        original_context_length: 32,
        yarn_beta_fast: 16,
        yarn_beta_slow: 2,
        attn_factor: 0.5,
      },
    ],
    [
      "yarn with the whole attention factor",
      { rope_scaling: { rope_type: "yarn", factor: Math.E, attention_factor: 2.2 } },
      { type: "yarn", factor: Math.fround(Math.E), attn_factor: Math.fround(2) },
    ],
  ];
  test.each(scalings)("rope scaling: %s", async (_what, change, expected) => {
    const { metadata } = await openHuggingFace(folder({ config: change }));
    const prefix = "llama.rope.scaling.";
    const keys = [...metadata.keys()].filter((key) => key.startsWith(prefix));
    const found = keys.map((key) => [key.slice(prefix.length), metadata.preview(key)?.value]);
    expect(Object.fromEntries(found)).toEqual({
      ...expected,
      ...(expected.attn_factor === undefined
        ? {}
        : { attn_factor: expect.closeTo(Number(expected.attn_factor), 6) }),
    });
    expect(metadata.number("llama.rope.freq_base")).toBe(50000);
  });

  const refused: [string, object, string][] = [
    [
      "an unknown model_type",
      { model_type: "rwkv" },
      'model_type: got "\\"rwkv\\"", expected one of llama, mistral, mixtral, bamboo, qwen2, qwen3',
    ],
    ["no model_type", { model_type: null }, 'model_type: got "nothing"'],
    ["no layers", { num_hidden_layers: undefined }, 'num_hidden_layers: got "nothing"'],
    ["a text as number", { hidden_size: "8" }, "hidden_size: got"],
    [
      "a negative size",
      { hidden_size: -8 },
      'hidden_size: got "-8", expected a whole number below 2^32',
    ],
    ["half a layer", { num_hidden_layers: 1.5 }, "num_hidden_layers: got"],
    [
      "an unknown rope scaling",
      { rope_scaling: { type: "su", factor: 2 } },
      "rope_scaling.rope_type: got",
    ],
    [
      "rope scaling without a factor",
      { rope_scaling: { type: "linear" } },
      'rope_scaling.factor: got "nothing"',
    ],
    ["a list as rope scaling", { rope_scaling: [1] }, 'rope_scaling: got "an array of 1"'],
    ["another activation", { hidden_act: "gelu" }, "hidden_act: got"],
    ["a text as token id", { eos_token_id: ["</s>"] }, "eos_token_id: got"],
  ];
  test.each(refused)("refuses %s", async (_what, change, message) => {
    const opening = openHuggingFace(folder({ config: change }));
    await expect(opening).rejects.toThrow(FormatError);
    await expect(opening).rejects.toThrow(message);
    await expect(opening).rejects.toThrow(/^huggingface: config\.json: /);
  });

  test.each([
    ["NaN", '{"model_type":"llama","hidden_size":NaN}', "expected valid JSON"],
    [
      "infinity",
      JSON.stringify(config).replace("50000", "1e999"),
      'rope_theta: got "Infinity", expected a finite number',
    ],
  ])("refuses %s", async (_what, text, message) => {
    const more = { "config.json": new TextEncoder().encode(text) };
    await expect(openHuggingFace(folder({ more }))).rejects.toThrow(message);
  });
});

describe("hugging face tokens and templates", () => {
  test("the tokenizer's own end goes before the ids of config.json", async () => {
    const more = {
      "tokenizer_config.json": jsonBytes({
        eos_token: null,
        add_bos_token: false,
        chat_template: "{{ x }}",
      }),
      "special_tokens_map.json": jsonBytes({ eos_token: { content: "<|im_end|>" } }),
      "generation_config.json": jsonBytes({ eos_token_id: 4 }),
    };
    const model = await openHuggingFace(folder({ more }));
    expect(model.metadata.number("tokenizer.ggml.eos_token_id")).toBe(4);
    expect(model.metadata.numbers("lantern.eos_token_ids")).toEqual([4, 2, 3]);
    expect(model.metadata.boolean("tokenizer.ggml.add_bos_token")).toBe(false);
    expect(model.metadata.string("tokenizer.chat_template")).toBe("{{ x }}");
    expect(model.tokenizer).toMatchObject({
      kind: "json",
      tokenizer: { added_tokens: [{ id: 4 }] },
      config: { eos_token: { content: "<|im_end|>" }, add_bos_token: false },
    });
  });

  test("named templates, and chat_template.jinja before all", async () => {
    const templates = [
      { name: "default", template: "D" },
      { name: "tool_use", template: "T" },
    ];
    const more = { "tokenizer_config.json": jsonBytes({ chat_template: templates }) };
    const { metadata } = await openHuggingFace(folder({ more }));
    expect(metadata.string("tokenizer.chat_template")).toBe("D");
    expect(metadata.string("tokenizer.chat_template.tool_use")).toBe("T");
    const jinja = { ...more, "chat_template.jinja": new TextEncoder().encode("J") };
    const second = await openHuggingFace(folder({ more: jinja }));
    expect(second.metadata.string("tokenizer.chat_template")).toBe("J");
  });

  test.each(["config.json", "tokenizer.json"])(
    "a folder without %s is refused",
    async (missing) => {
      const files: Record<string, Uint8Array> = {
        "config.json": jsonBytes(config),
        "tokenizer.json": jsonBytes({}),
        "model.safetensors": safetensorsOf(ends),
      };
      delete files[missing];
      await expect(openHuggingFace(memorySource(files))).rejects.toThrow(
        `${missing}: got "no such file"`,
      );
    },
  );
});
