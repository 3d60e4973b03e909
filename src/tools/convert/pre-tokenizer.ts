// Finds the GGUF pre-tokenizer (a name, tokenizer.ggml.pre) that splits text like a tokenizer.json, which describes
// its own.
//
// They are compared by behaviour on texts for which the known pre-tokenizers all give different results. Only the behaviour counts,
// so any vocabulary will do.

import { ModelError } from "../../base/errors.ts";
import type { JsonRecord } from "../../tokenizers/json/fields.ts";
import { makePreTokenizer, runStages } from "../../tokenizers/json/pre-tokenizer.ts";
import { preTokenizers, splitWords } from "../../tokenizers/pretokenize.ts";

/** Texts that distinguish pre-tokenizers: digits, spaces, contractions, capitals, marks, scripts. */
export const probes: readonly string[] = [
  "1 22 333 4444 55555 666666 7777777; 3.14 x2y33 ٣٤٥٦ ⅷ½",
  "one  two   three\tfour \t five\n\nsix \n seven\r\n\r\n  eight   ",
  "I'm we'RE they've she'D you'll it's CAN'T 'tis rock'n'roll",
  "camelCase HTTPServer snake_case McDonald iPhone ÉcoleNormale straßeGROSS",
  "a,b;c: (d) [e] {f} «g» “h” -- ... !!! ?! #tag @user $5 50% a/b//c/\n path/to\nend",
  "x=y+1; if (a<b && c>=d) { return !e; } // note\n\n\t\tnext~`^|",
  "Привет мир. Ελληνικά γράμματα, עברית עם ניקוד, العربية ١٢٣",
  "中文字符和English混合，数字123。日本語のテキスト、カタカナ。한국어 문장입니다 ไทยภาษา हिन्दी में",
  "🦙🦙 ok 👩‍👩‍👧 e\u0301 n\u0303 \u00a0nbsp\u2003em\u200bzero ﬁ",
];

export function findPreTokenizerName(json: JsonRecord): string {
  const wanted = cutsOf(json);
  const ignoreMerges = (json.model as JsonRecord).ignore_merges === true;
  const same = preTokenizers.filter(({ patterns }) => {
    const cuts = probes.map((probe) => words((emit) => splitWords(probe, patterns, emit)));
    return JSON.stringify(cuts) === wanted;
  });
  const best = same.find((entry) => (entry.ignoreMerges ?? false) === ignoreMerges) ?? same[0];
  if (best) return best.names[0]!;
  throw new ModelError(
    `convert: no pre-tokenizer of GGUF splits text as the one in tokenizer.json does (${describe(json.pre_tokenizer)}). If you know its name, give it with --pre. Known: ${preTokenizers.flatMap(({ names }) => names).join(", ")}`,
  );
}

/** The cuts that tokenizer.json's pre-tokenizer makes in the probes, without the space that some add before the text. */
function cutsOf(json: JsonRecord): string {
  const plain = withoutPrefixSpace(json.pre_tokenizer);
  const { stages } = makePreTokenizer(plain);
  return JSON.stringify(
    probes.map((probe) => words((emit) => runStages(stages, probe, true, emit))),
  );
}

function words(cut: (emit: (word: string) => void) => void): string[] {
  const list: string[] = [];
  cut((word) => list.push(word));
  return list;
}

function withoutPrefixSpace(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutPrefixSpace);
  if (typeof value !== "object" || value === null) return value;
  const copy = Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, withoutPrefixSpace(inner)]),
  );
  return copy.type === "ByteLevel" ? { ...copy, add_prefix_space: false } : copy;
}

/** The members of a normalizer, pre-tokenizer or decoder Sequence, under any name of the list. */
export function piecesOf(value: unknown): JsonRecord[] {
  if (typeof value !== "object" || value === null) return [];
  const piece = value as JsonRecord;
  const members = piece.normalizers ?? piece.pretokenizers ?? piece.decoders;
  return Array.isArray(members) ? members.flatMap(piecesOf) : [piece];
}

function describe(value: unknown): string {
  return piecesOf(value)
    .map(({ type }) => String(type))
    .join(", ");
}
