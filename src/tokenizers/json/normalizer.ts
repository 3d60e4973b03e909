// The normalizers of tokenizer.json: changes to a text before it is split into words. One table entry per type.

import type { Check } from "../../base/check.ts";
import { byteToChar } from "../byte-level.ts";
import { isChinese } from "../wordpiece.ts";
import { asArray, asRecord, asString, booleanOr, type Maker, makePiece } from "./fields.ts";
import { type Pattern, translateRegex } from "./regex.ts";

/** `check` throws when the work should stop. */
export type Normalizer = (text: string, check?: Check) => string;

const ROLE = "normalizer";
const utf8 = new TextEncoder();

const normalizers: Readonly<Record<string, Maker<Normalizer>>> = {
  Sequence: ({ normalizers: list }) => {
    const steps = asArray(list, "normalizer.normalizers").map((step) => makeNormalizer(step));
    return (text, check) => steps.reduce((result, step) => step(result, check), text);
  },
  NFC: () => (text) => text.normalize("NFC"),
  NFD: () => (text) => text.normalize("NFD"),
  NFKC: () => (text) => text.normalize("NFKC"),
  NFKD: () => (text) => text.normalize("NFKD"),
  Lowercase: () => (text) => text.toLowerCase(),
  StripAccents: () => (text) => text.replace(/\p{Mn}/gu, ""),
  Strip: ({ strip_left, strip_right }) => {
    const left = booleanOr(strip_left, true, "normalizer.strip_left");
    const right = booleanOr(strip_right, true, "normalizer.strip_right");
    return (text) => {
      const start = left ? text.replace(/^\p{White_Space}+/u, "") : text;
      // Only from the start of a run: from each of a million spaces in the middle of a text it would take hours.
      return right ? start.replace(/(?<!\p{White_Space})\p{White_Space}+$/u, "") : start;
    };
  },
  Prepend: ({ prepend }) => {
    const prefix = asString(prepend, "normalizer.prepend");
    return (text) => (text === "" ? text : prefix + text);
  },
  Replace: ({ pattern, content }) => {
    const replacement = asString(content, "normalizer.content");
    const search = makePattern(pattern, "normalizer.pattern");
    return (text, check) => replaceAll(text, search, replacement, check);
  },
  ByteLevel: () => (text) => Array.from(utf8.encode(text), (byte) => byteToChar[byte]!).join(""),
  BertNormalizer: (piece) => {
    const flag = (name: string, fallback: boolean): boolean =>
      booleanOr(piece[name], fallback, `normalizer.${name}`);
    const lowercase = flag("lowercase", true);
    const stripAccents = flag("strip_accents", lowercase);
    const clean = flag("clean_text", true);
    const chinese = flag("handle_chinese_chars", true);
    return (text) => {
      let result = clean ? cleanText(text) : text;
      if (chinese) result = spaceChinese(result);
      if (stripAccents) result = result.normalize("NFD").replace(/\p{Mn}/gu, "");
      return lowercase ? result.toLowerCase() : result;
    };
  },
};

export function makeNormalizer(value: unknown): Normalizer {
  return makePiece(ROLE, normalizers, value);
}

export function replaceAll(
  text: string,
  search: string | Pattern,
  replacement: string,
  check?: Check,
): string {
  if (typeof search === "string") return text.replaceAll(search, () => replacement);
  const found = search.matches(text, check);
  let result = "";
  let end = 0;
  for (let i = 0; i < found.length; i += 2) {
    result += text.slice(end, found[i]!) + replacement;
    end = found[i + 1]!;
  }
  return end === 0 && found.length === 0 ? text : result + text.slice(end);
}

/** {"String": "..."} or {"Regex": "..."}. */
export function makePattern(value: unknown, field: string): string | Pattern {
  const pattern = asRecord(value, field);
  if (pattern.String !== undefined) return asString(pattern.String, `${field}.String`);
  return translateRegex(asString(pattern.Regex, `${field}.Regex`));
}

/** Drops control characters (including white space other than tab and line breaks); other white space becomes a space. */
function cleanText(text: string): string {
  return text
    .replace(/[\0\ufffd]|(?![\t\n\r])[\p{Cc}\p{Cf}\p{Cn}\p{Co}]/gu, "")
    .replace(/\p{White_Space}/gu, " ");
}

function spaceChinese(text: string): string {
  let result = "";
  for (const char of text) result += isChinese(char.codePointAt(0)!) ? ` ${char} ` : char;
  return result;
}
