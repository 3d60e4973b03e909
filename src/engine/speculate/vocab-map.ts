// The ids of one text in two vocabularies: the target's, which a generation has, and the draft model's.
//
// Tokens with the same bytes, and tokens with the same role (begin of text, end of text), stand for each other. The target's text
// reaches the draft token by token; one without a counterpart is spelled in the draft's tokens. Drafts go the other way as text:
// the draft may spell one token of the target in several. The translation need not be exact: a wrong one is a draft that is not
// accepted.

import { ModelError } from "../../base/errors.ts";
import type { SpecialTokens, Tokenizer } from "../../tokenizers/tokenizer.ts";

/** Below this fraction of common tokens, the two belong to different families, and most drafts would be wrong. */
const LEAST_COMMON = 0.5;

export interface VocabMap {
  /** Whether both have the same ids. */
  readonly isSame: boolean;
  /** The draft's token for one of the target's; -1: none, see spelled(). */
  toDraft(token: number): number;
  /** A token without counterpart in the draft's tokens: none where it has no text. */
  spelled(token: number): readonly number[];
  /**
   * Translates the first `count` tokens of the draft into up to out.length of the target's, and returns their number. If the
   * vocabularies differ, the last is uncertain: the next token of the draft may continue it.
   */
  translate(ids: Int32Array, count: number, out: Int32Array): number;
  /** For reports. */
  readonly note: string;
}

export interface Vocabulary {
  /** The name of the model, for messages. */
  readonly name: string;
  readonly tokenizer: Tokenizer;
}

const none: readonly number[] = [];

/** Throws a ModelError with the numbers if the two have too little in common. */
export function mapVocabulary(target: Vocabulary, draft: Vocabulary): VocabMap {
  const [large, small] = [target.tokenizer, draft.tokenizer];
  const both = Math.min(large.vocabSize, small.vocabSize);
  if (large.fingerprint === small.fingerprint) {
    return {
      isSame: true,
      toDraft: (token) => (token < both ? token : -1),
      spelled: () => none,
      translate: (ids, count, out) => copy(ids, Math.min(count, out.length), out),
      note: `the same vocabulary, ${both} tokens`,
    };
  }
  const { toDraft, toTarget, common } = tables(large, small);
  if (common < LEAST_COMMON * both) {
    throw new ModelError(
      `the draft model ${draft.name} cannot draft for ${target.name}: of its ${small.vocabSize} tokens, ${common} are among the ${large.vocabSize} of ${target.name}, expected at least ${Math.ceil(LEAST_COMMON * both)}. Give a draft model of the same family`,
    );
  }
  const known = new Map<number, readonly number[]>();
  return {
    isSame: false,
    toDraft: (token) => toDraft[token] ?? -1,
    spelled(token) {
      const ids = known.get(token) ?? encodeAfter(small, textOf(large, token));
      known.set(token, ids);
      return ids;
    },
    translate: (ids, count, out) => translate(ids.subarray(0, count), out, large, small, toTarget),
    note: `${common} of its ${small.vocabSize} tokens are among the ${large.vocabSize} of ${target.name}`,
  };
}

function copy(ids: ArrayLike<number>, count: number, out: Int32Array, at = 0): number {
  for (let i = 0; i < count; i++) out[at + i] = ids[i]!;
  return count;
}

type Role = keyof SpecialTokens & ("bos" | "eos" | "eot");
const roles: readonly Role[] = ["eot", "eos", "bos"];

function tables(target: Tokenizer, draft: Tokenizer) {
  const toDraft = new Int32Array(target.vocabSize).fill(-1);
  const toTarget = new Int32Array(draft.vocabSize).fill(-1);
  const byBytes = new Map<string, number>();
  for (let id = target.vocabSize - 1; id >= 0; id--) byBytes.set(keyOf(target, id), id);
  for (let id = 0; id < draft.vocabSize; id++) {
    const key = keyOf(draft, id);
    const same = key === "" ? undefined : byBytes.get(key);
    if (same === undefined) continue;
    toTarget[id] = same;
    if (toDraft[same] === -1) toDraft[same] = id;
  }
  for (const role of roles) {
    const [here, there] = [target.special[role], draft.special[role]];
    if (here === undefined || there === undefined) continue;
    toDraft[here] = there;
    toTarget[there] = here;
  }
  return { toDraft, toTarget, common: toTarget.reduce((sum, id) => sum + (id < 0 ? 0 : 1), 0) };
}

/** The same for tokens with the same bytes; control tokens are not text that looks like them. Empty: the token has no bytes. */
function keyOf(tokenizer: Tokenizer, id: number): string {
  const bytes = tokenizer.tokenBytes(id, { special: true });
  if (bytes.length === 0) return "";
  const isText = tokenizer.tokenBytes(id).length > 0;
  return `${isText ? "t" : "c"}${String.fromCharCode(...bytes)}`;
}

/** Empty for control tokens, and for bytes that are no whole characters. */
function textOf(tokenizer: Tokenizer, token: number): string {
  if (token >= tokenizer.vocabSize) return "";
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(tokenizer.tokenBytes(token));
  return text.includes("\ufffd") ? "" : text;
}

/** The tokens of a text that continues another: encode() alone could put a space before it. */
function encodeAfter(tokenizer: Tokenizer, text: string): readonly number[] {
  if (text === "") return none;
  const options = { addSpecial: false, parseSpecial: false };
  const before = tokenizer.encode("\n", options);
  const all = tokenizer.encode(`\n${text}`, options);
  return before.every((id, i) => all[i] === id) ? all.slice(before.length) : none;
}

function translate(
  ids: Int32Array,
  out: Int32Array,
  target: Tokenizer,
  draft: Tokenizer,
  toTarget: Int32Array,
): number {
  const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  let text = "";
  let end = -1;
  for (const id of ids) {
    const bytes = draft.tokenBytes(id);
    if (bytes.length > 0) text += utf8.decode(bytes, { stream: true });
    else {
      end = toTarget[id]!; // a control token: text is not expected behind it
      break;
    }
  }
  const tokens = encodeAfter(target, text);
  const count = copy(tokens, Math.min(tokens.length, out.length), out);
  if (end < 0 || count === out.length) return count;
  out[count] = end;
  return count + 1;
}
