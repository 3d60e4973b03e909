// The names of the fields of an interface in a .d.ts file, as text: TypeScript has no compiler API any more.

/** Fields of all interfaces (or object types) with this name, without those that they inherit. */
export function fieldsOf(declarations: string, name: string): string[] {
  const text = declarations.replace(/\/\*[\s\S]*?\*\//g, "").replace(/\/\/.*/g, "");
  const names: string[] = [];
  const begin = new RegExp(`\\b(?:interface|type)\\s+${name}\\b[^{;]*\\{`, "g");
  for (let found = begin.exec(text); found; found = begin.exec(text)) {
    let depth = 1;
    let item = "";
    for (let at = begin.lastIndex; depth > 0 && at < text.length; at++) {
      const character = text[at]!;
      if ("{([".includes(character)) depth++;
      if ("})]".includes(character)) depth--;
      if (depth === 1) item += character;
      if (depth > 1 || !";\n".includes(character)) continue;
      const field = /^\s*["']?([\w$]+)["']?\??:/.exec(item);
      if (field) names.push(field[1]!);
      if (character === ";" || !field) item = "";
    }
  }
  return [...new Set(names)];
}
