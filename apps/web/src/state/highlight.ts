// Syntax highlighting: highlight.js, loaded with the first code block, and only the languages that occur. Its output
// is HTML of spans; sanitize.ts removes everything but their classes.

import type { HLJSApi, LanguageFn } from "highlight.js";
import { sanitizeCode } from "./sanitize.ts";

type Load = () => Promise<{ default: LanguageFn }>;

const languages: Readonly<Record<string, Load>> = {
  bash: () => import("highlight.js/lib/languages/bash"),
  c: () => import("highlight.js/lib/languages/c"),
  cpp: () => import("highlight.js/lib/languages/cpp"),
  csharp: () => import("highlight.js/lib/languages/csharp"),
  css: () => import("highlight.js/lib/languages/css"),
  diff: () => import("highlight.js/lib/languages/diff"),
  go: () => import("highlight.js/lib/languages/go"),
  java: () => import("highlight.js/lib/languages/java"),
  javascript: () => import("highlight.js/lib/languages/javascript"),
  json: () => import("highlight.js/lib/languages/json"),
  kotlin: () => import("highlight.js/lib/languages/kotlin"),
  lua: () => import("highlight.js/lib/languages/lua"),
  php: () => import("highlight.js/lib/languages/php"),
  python: () => import("highlight.js/lib/languages/python"),
  ruby: () => import("highlight.js/lib/languages/ruby"),
  rust: () => import("highlight.js/lib/languages/rust"),
  sql: () => import("highlight.js/lib/languages/sql"),
  swift: () => import("highlight.js/lib/languages/swift"),
  typescript: () => import("highlight.js/lib/languages/typescript"),
  xml: () => import("highlight.js/lib/languages/xml"),
  yaml: () => import("highlight.js/lib/languages/yaml"),
};

/** Other names that people and models use. */
const aliases: Readonly<Record<string, string>> = {
  ...{ sh: "bash", shell: "bash", zsh: "bash", console: "bash", h: "c", "c++": "cpp", cc: "cpp" },
  ...{ hpp: "cpp", cs: "csharp", "c#": "csharp", patch: "diff", golang: "go", js: "javascript" },
  ...{ jsx: "javascript", mjs: "javascript", jsonc: "json", kt: "kotlin", py: "python" },
  ...{ python3: "python", rb: "ruby", rs: "rust", ts: "typescript", tsx: "typescript" },
  ...{ html: "xml", svg: "xml", xhtml: "xml", yml: "yaml" },
};

/** Longer code is not highlighted, because that would block the page. */
const mostLetters = 40_000;

let engine: HLJSApi | undefined;

function nameOf(language: string): string | undefined {
  const name = language.toLowerCase();
  const known = Object.hasOwn(aliases, name) ? aliases[name]! : name;
  return Object.hasOwn(languages, known) ? known : undefined;
}

/** Loads a language; true: it was not loaded before. */
export async function wantHighlighter(language: string): Promise<boolean> {
  const name = nameOf(language);
  if (name === undefined || engine?.getLanguage(name)) return false;
  try {
    const [{ default: core }, { default: grammar }] = await Promise.all([
      import("highlight.js/lib/core"),
      languages[name]!(),
    ]);
    core.registerLanguage(name, grammar);
    engine = core;
    return true;
  } catch {
    return false; // the server has gone; the code is readable without
  }
}

/** Sanitised HTML; undefined: not highlighted. */
export function highlighted(text: string, language: string): string | undefined {
  const name = nameOf(language);
  if (name === undefined || !engine?.getLanguage(name) || text.length > mostLetters) {
    return undefined;
  }
  return sanitizeCode(engine.highlight(text, { language: name, ignoreIllegals: true }).value);
}
