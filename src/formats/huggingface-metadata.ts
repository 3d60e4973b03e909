// Translates config.json and its companions into GGUF's metadata keys.
//
// Keys that GGUF does not have:
//   lantern.rope.layout                     "half": Hugging Face weights rotate pairs (i, i + head/2), GGUF's llama (2i, 2i+1)
//   lantern.eos_token_ids                   all ids that end a text, where generation_config.json names several
//   <arch>.rope.scaling.low_freq_factor     llama3 scaling
//   <arch>.rope.scaling.high_freq_factor

import {
  configError,
  numberIn,
  ropeKey,
  ropeOf,
  valueIn,
  windowRopeOf,
} from "./huggingface-config.ts";
import { architectures, classes } from "./huggingface-families.ts";
import {
  type HuggingFaceArchitecture,
  ropeScalings,
  type Setting,
  settings,
  slidingWindow,
  textConfig,
} from "./huggingface-names.ts";
import { describe, field, isObject, type JsonObject } from "./json.ts";
import { arrayEntry, type MetadataEntry, TypedMetadata } from "./typed-metadata.ts";

/** The parsed files of a folder; missing ones are empty objects. */
export interface HuggingFaceFiles {
  config: JsonObject;
  generationConfig: JsonObject;
  /** tokenizer_config.json merged over special_tokens_map.json. */
  tokenizerConfig: JsonObject;
  tokenizer: JsonObject;
  /** chat_template.jinja, which takes precedence over the template in tokenizer_config.json. */
  chatTemplate: string | undefined;
}

type Entries = Map<string, MetadataEntry>;

export function architectureOf(config: JsonObject): HuggingFaceArchitecture {
  const className = valueIn(config, ["architectures"]);
  const first: unknown = Array.isArray(className) ? className[0] : undefined;
  const modelType = field(config, "model_type") ?? typeOfClass(first);
  const found =
    classes.get(typeof first === "string" ? first : "") ??
    architectures.get(typeof modelType === "string" ? modelType : "");
  if (found) return typeof found === "function" ? found(textConfig(config)) : found;
  throw configError(
    "model_type",
    describe(modelType),
    `one of ${[...architectures.keys()].join(", ")}`,
  );
}

/** "Qwen2MoeForCausalLM" has model_type qwen2_moe, where config.json leaves that out. */
function typeOfClass(className: unknown): unknown {
  if (typeof className !== "string") return className;
  const plain = (text: string) => text.replaceAll("_", "").toLowerCase();
  const wanted = plain(className.slice(0, endOfKind(className)));
  return [...architectures.keys()].find((type) => plain(type) === wanted) ?? className;
}

/** The index at which "ForCausalLM" or "LMHeadModel" begins. */
function endOfKind(className: string): number {
  const ends = ["LMHeadModel", "For"].map((end) => className.lastIndexOf(end));
  return ends.find((at) => at > 0) ?? className.length;
}

/** `listed`: keys with values that are tensors in the folder. */
export function huggingFaceMetadata(
  files: HuggingFaceFiles,
  name: string,
  listed: ReadonlyMap<string, MetadataEntry> = new Map(),
): TypedMetadata {
  const { config } = files;
  const family = architectureOf(config);
  const arch = family.name;
  const entries: Entries = new Map(listed);
  entries.set("general.architecture", { type: "string", value: arch });
  entries.set("general.name", { type: "string", value: name });
  checkActivation(config, family);
  checkFixed(config, family);
  checkPacked(config, family);
  const missing = family.without ?? [];
  const common = settings.map((setting) =>
    setting.required && missing.includes(setting.to[0]!)
      ? { ...setting, required: undefined }
      : setting,
  );
  // Lists of numbers are the family's own affair.
  const plain = common.filter(({ from }) => !Array.isArray(valueIn(config, namesOf(from))));
  copySettings(entries, config, [...plain, ...(family.settings ?? [])], `${arch}.`, "");
  if (usesSlidingWindow(config)) copySettings(entries, config, [slidingWindow], `${arch}.`, "");
  addEpsilon(entries, arch);
  addRope(entries, config, family);
  for (const [key, entry] of Object.entries(family.keys?.(config) ?? {})) {
    if (entry) entries.set(`${arch}.${key}`, entry);
    else entries.delete(`${arch}.${key}`);
  }
  addTokens(entries, files);
  addChatTemplates(entries, files);
  if (family.pairTemplate !== undefined) {
    entries.set("tokenizer.chat_template.rerank", { type: "string", value: family.pairTemplate });
  }
  return new TypedMetadata("huggingface", "config.json", entries);
}

function addEpsilon(entries: Entries, arch: string): void {
  const [rms, layer] = ["rms_", ""].map((kind) => `${arch}.attention.layer_norm_${kind}epsilon`);
  if (entries.has(rms!) || entries.has(layer!)) return;
  entries.set(rms!, { type: "f32", value: Math.fround(1e-6) });
}

/** With another activation than its architecture's, a model would load and generate nonsense. */
function checkActivation(config: JsonObject, { activations }: HuggingFaceArchitecture): void {
  const known = activations ?? ["silu", "swish"];
  // If there are two, the second is computed, and the first is an old name of it.
  const key = ["hidden_activation", "hidden_act", "activation_function", "activation"].find(
    (each) => typeof field(config, each) === "string",
  );
  const activation = key === undefined ? known[0] : field(config, key);
  if (known.includes(String(activation))) return;
  throw configError(key!, describe(activation), known.join(" or "));
}

function checkFixed(config: JsonObject, { fixed = {} }: HuggingFaceArchitecture): void {
  for (const [key, wanted] of Object.entries(fixed)) {
    const value = field(config, key) ?? wanted;
    if (value !== wanted) throw configError(key, describe(value), describe(wanted));
  }
}

/** Quantized folders have tensors of their own, which few families read. */
function checkPacked(config: JsonObject, { packed = [] }: HuggingFaceArchitecture): void {
  const found = field(config, "quantization_config");
  const method = isObject(found) ? field(found, "quant_method") : found;
  if (method === undefined || method === null || packed.includes(String(method))) return;
  const expected = [...packed, "a folder with F32, F16 or BF16 weights"].join(", or ");
  throw configError(
    "quantization_config.quant_method",
    typeof method === "string" ? method : describe(method),
    `${expected}; a GGUF file of the same model can be quantized`,
  );
}

/** Mistral's early models always use it, Qwen's only if told to; null means no window. */
function usesSlidingWindow(config: JsonObject): boolean {
  const window = field(config, "sliding_window");
  return window !== undefined && window !== null && field(config, "use_sliding_window") !== false;
}

function copySettings(
  entries: Entries,
  from: JsonObject,
  list: readonly Setting[],
  prefix: string,
  path: string,
): void {
  for (const setting of list) {
    const value = numberOf(from, setting, path);
    if (value === undefined) continue;
    for (const key of setting.to) entries.set(prefix + key, { type: setting.type, value });
  }
}

function namesOf(from: Setting["from"]): readonly string[] {
  return typeof from === "string" ? [from] : from;
}

function numberOf(from: JsonObject, setting: Setting, path: string): number | undefined {
  const names = namesOf(setting.from);
  const value = valueIn(from, names);
  if (value === undefined && !setting.required) return undefined;
  // JSON has no NaN, but 1e999 becomes Infinity.
  if (typeof value === "number" && Number.isFinite(value)) {
    if (setting.type === "f32") return Math.fround(value);
    if (Number.isInteger(value) && value >= 0 && value <= (setting.most ?? 0xffff_ffff))
      return value;
  }
  const whole = setting.most === undefined ? "below 2^32" : `up to ${setting.most}`;
  const expected = setting.type === "f32" ? "a finite number" : `a whole number ${whole}`;
  const found = names.find((name) => field(from, name) === value) ?? names[0]!;
  throw configError(path + found, describe(value), expected);
}

function addRope(entries: Entries, config: JsonObject, family: HuggingFaceArchitecture): void {
  const arch = family.name;
  const key = ropeKey(config);
  const rope = ropeOf(config);
  const theta: Setting = { from: "rope_theta", to: ["rope.freq_base"], type: "f32" };
  copySettings(entries, { rope_theta: 10000 }, [theta], `${arch}.`, "");
  copySettings(
    entries,
    config,
    [{ ...theta, from: ["rope_theta", "rotary_emb_base"] }],
    `${arch}.`,
    "",
  );
  copySettings(entries, rope, [theta], `${arch}.`, `${key}.`);
  const local: Setting = { from: "rope_local_base_freq", to: ["rope.freq_base_swa"], type: "f32" };
  copySettings(entries, config, [local], `${arch}.`, "");
  const windowTheta: Setting = { ...local, from: "rope_theta" };
  copySettings(entries, windowRopeOf(config), [windowTheta], `${arch}.`, `${key}.`);
  if (family.pairs !== "stored") {
    entries.set("lantern.rope.layout", { type: "string", value: "half" });
  }
  addRotaryPart(entries, config, rope, arch);

  const type = field(rope, "rope_type") ?? field(rope, "type") ?? "default";
  const list = ropeScalings.get(typeof type === "string" ? type : "");
  if (!list) {
    throw configError(
      `${key}.rope_type`,
      describe(type),
      `one of ${[...ropeScalings.keys()].join(", ")}`,
    );
  }
  if (type === "default" || type === "dynamic") return;
  const prefix = `${arch}.rope.scaling.`;
  entries.set(`${prefix}type`, { type: "string", value: String(type) });
  copySettings(entries, rope, list, prefix, `${key}.`);
  addAttentionFactor(entries, rope, prefix, key);
}

/** Models that rotate only a part of each head. */
function addRotaryPart(entries: Entries, config: JsonObject, rope: JsonObject, arch: string): void {
  const names = ["partial_rotary_factor", "rotary_pct"];
  const part = numberIn({ ...config, ...rope }, names, 1);
  if (part === 1) return;
  const heads = numberIn(config, ["num_attention_heads", "n_head"]);
  const headDim = numberIn(config, ["head_dim"], numberIn(config, ["hidden_size"]) / heads);
  entries.set(`${arch}.rope.dimension_count`, { type: "u32", value: Math.floor(part * headDim) });
}

/**
 * Hugging Face's attention_factor is the whole factor on the rotated values; GGUF's attn_factor multiplies YaRN's own
 * 1 + 0.1 ln(factor).
 */
function addAttentionFactor(entries: Entries, rope: JsonObject, prefix: string, key: string): void {
  const setting: Setting = { from: "attention_factor", to: [], type: "f32" };
  const whole = numberOf(rope, setting, `${key}.`);
  const factor = entries.get(`${prefix}factor`);
  if (whole === undefined || factor === undefined || factor.type === "array") return;
  const value = Math.fround(whole / (1 + 0.1 * Math.log(Number(factor.value))));
  entries.set(`${prefix}attn_factor`, { type: "f32", value });
}

const specialTokens: readonly { token: string; id: string; key: string }[] = [
  { token: "bos_token", id: "bos_token_id", key: "tokenizer.ggml.bos_token_id" },
  { token: "eos_token", id: "eos_token_id", key: "tokenizer.ggml.eos_token_id" },
  { token: "unk_token", id: "unk_token_id", key: "tokenizer.ggml.unknown_token_id" },
  { token: "pad_token", id: "pad_token_id", key: "tokenizer.ggml.padding_token_id" },
];

function addTokens(entries: Entries, files: HuggingFaceFiles): void {
  const { config, generationConfig, tokenizerConfig } = files;
  const ids = addedTokenIds(files);
  for (const { token, id, key } of specialTokens) {
    // The tokenizer's end token is the one that ends a chat turn; the ids in config.json are the fallback.
    const named = ids.get(tokenText(field(tokenizerConfig, token)) ?? "");
    const value = named ?? tokenIds(config, id, "config.json")[0];
    if (value !== undefined) entries.set(key, { type: "u32", value });
  }
  const ends = new Set([
    ...tokenIds(generationConfig, "eos_token_id", "generation_config.json"),
    ...tokenIds(config, "eos_token_id", "config.json"),
  ]);
  if (ends.size > 0) entries.set("lantern.eos_token_ids", arrayEntry("u32", [...ends]));
  for (const flag of ["add_bos_token", "add_eos_token"]) {
    const value = field(tokenizerConfig, flag);
    if (typeof value === "boolean") entries.set(`tokenizer.ggml.${flag}`, { type: "bool", value });
  }
}

/** One id, a list of ids, or no id. */
function tokenIds(from: JsonObject, key: string, file: string): number[] {
  const value = field(from, key);
  if (value === undefined) return [];
  const list: unknown[] = Array.isArray(value) ? value : [value];
  // -1 stands for "none" in some configurations.
  const ids = list.filter((id) => id !== -1 && id !== null);
  const valid = ids.every(
    (id) => Number.isInteger(id) && Number(id) >= 0 && Number(id) <= 0xffff_ffff,
  );
  if (valid) return ids as number[];
  throw configError(key, describe(ids[0]), "a token id or a list of them", file);
}

/** A special token is a string or an object with its text. */
function tokenText(value: unknown): string | undefined {
  const text = isObject(value) ? field(value, "content") : value;
  return typeof text === "string" ? text : undefined;
}

/** Ids of the added tokens, by text: from tokenizer.json, and from tokenizer_config.json's added_tokens_decoder. */
function addedTokenIds(files: HuggingFaceFiles): Map<string, number> {
  const ids = new Map<string, number>();
  const decoder = field(files.tokenizerConfig, "added_tokens_decoder");
  for (const [id, token] of Object.entries(isObject(decoder) ? decoder : {})) {
    const text = tokenText(token);
    if (text !== undefined && /^\d{1,9}$/.test(id)) ids.set(text, Number(id));
  }
  const added = field(files.tokenizer, "added_tokens");
  for (const token of Array.isArray(added) ? added : []) {
    const id = isObject(token) ? field(token, "id") : undefined;
    const text = tokenText(token);
    if (text !== undefined && Number.isSafeInteger(id) && Number(id) >= 0)
      ids.set(text, Number(id));
  }
  return ids;
}

function addChatTemplates(entries: Entries, files: HuggingFaceFiles): void {
  const set = (key: string, value: string): void => {
    entries.set(key, { type: "string", value });
  };
  const template = field(files.tokenizerConfig, "chat_template");
  if (typeof template === "string") set("tokenizer.chat_template", template);
  // Several templates: a list of { name, template }; the others are GGUF's tokenizer.chat_template.<name>.
  for (const item of Array.isArray(template) ? template : []) {
    const name = isObject(item) ? field(item, "name") : undefined;
    const text = isObject(item) ? field(item, "template") : undefined;
    if (typeof name !== "string" || typeof text !== "string") continue;
    set(name === "default" ? "tokenizer.chat_template" : `tokenizer.chat_template.${name}`, text);
  }
  if (files.chatTemplate !== undefined) set("tokenizer.chat_template", files.chatTemplate);
}
