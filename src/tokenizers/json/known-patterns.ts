// Patterns from published tokenizer.json files. They are run by the platform's RegExp, which is faster than our own
// matcher: each was checked, and takes linear time. (Only a single character class is repeated; after a run of it,
// either the match is over or another alternative takes the whole run.)

const CL100K_REST =
  "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const QWEN2_REST =
  "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const UPPER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
const LOWER = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";
const ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
const O200K_END = " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const known: ReadonlySet<string> = new Set([
  // GPT-2, and others that split like it
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
  "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
  // Llama 3 (cl100k) and Qwen 2
  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|${CL100K_REST}`,
  `(?i:[sdmt]|ll|ve|re)|${CL100K_REST}`,
  `'(?i:[sdmt]|ll|ve|re)|${CL100K_REST}`,
  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|${QWEN2_REST}`,
  // o200k: gpt-oss, Llama 4, Mistral's Tekken
  `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${ENDING}|[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${ENDING}|\\p{N}{1,3}|${O200K_END}`,
  `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+|[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*|\\p{N}|${O200K_END}`,
  // DeepSeek
  "\\p{N}{1,3}",
  "[一-龥぀-ゟ゠-ヿ]+",
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "[\\r\\n]",
  "\\s?\\p{L}+",
  "\\s?\\p{P}+",
  "[一-龥ࠀ-一가-퟿]+",
  // Single classes, as used in Split and Replace
  "\\p{N}",
  "\\d",
  "\\s+",
  " {2,}",
  "\\s",
]);

export function isKnownPattern(source: string): boolean {
  return known.has(source);
}
