// What every file exports, and what every file takes of others: for the rule that an export has a user. Built on the scanner,
// so a name that is only computed at run time would not be seen; there are none.

import { isText, resolveImport, type Token } from "./scan.ts";

export interface Export {
  readonly name: string;
  readonly isType: boolean;
}

/** What is taken of another file: names, or "*" for everything (a namespace, a re-export of all). */
export interface Use {
  /** From the repository's root. */
  readonly path: string;
  readonly names: readonly string[] | "*";
}

export function exportsOf(tokens: readonly Token[]): Export[] {
  return tokens.flatMap((token, at) => {
    if (!isText(token, "export") || token.kind !== "word") return [];
    const isType = isText(tokens[at + 1], "type") || isText(tokens[at + 1], "interface");
    return exportedNames(tokens, at + 1).map((name) => ({ name, isType }));
  });
}

const modifiers: readonly string[] = ["async", "abstract", "declare"];
const declarations: readonly string[] = ["function", "class", "interface", "const", "let", "type"];

function exportedNames(tokens: readonly Token[], from: number): string[] {
  let at = from;
  if (isText(tokens[at], "type") && isText(tokens[at + 1], "{")) at++;
  if (isText(tokens[at], "{")) return bracedNames(tokens, at).map(({ outside }) => outside);
  while (modifiers.includes(tokens[at]?.text ?? "")) at++;
  if (!declarations.includes(tokens[at]?.text ?? "")) return [];
  at++;
  if (isText(tokens[at], "*")) at++; // a generator
  return tokens[at]?.kind === "word" ? [tokens[at]!.text] : [];
}

export function usesOf(importer: string, tokens: readonly Token[]): Use[] {
  return tokens.flatMap((token, at) => {
    if (token.kind !== "word" || isText(tokens[at - 1], ".")) return [];
    const use = token.text === "import" || token.text === "export" ? useAt(tokens, at) : undefined;
    const path = use && resolveImport(importer, use.from);
    return use && path ? [{ path, names: use.names }] : [];
  });
}

interface RawUse {
  readonly from: string;
  readonly names: readonly string[] | "*";
}

function useAt(tokens: readonly Token[], at: number): RawUse | undefined {
  if (isText(tokens[at + 1], "(")) return dynamicUse(tokens, at);
  let i = at + 1;
  if (isText(tokens[i], "type") && !isText(tokens[i + 1], "from")) i++;
  const names: string[] = [];
  for (; i < tokens.length; i++) {
    const token = tokens[i]!;
    if (isText(token, "{")) {
      names.push(...bracedNames(tokens, i).map(({ inside }) => inside));
      while (!isText(tokens[i], "}")) i++;
    } else if (isText(token, "*")) {
      const from = tokens.slice(i, i + 5).find(({ kind }) => kind === "string");
      return from && { from: from.text, names: "*" };
    } else if (isText(token, "from") && tokens[i + 1]?.kind === "string") {
      return { from: tokens[i + 1]!.text, names };
    } else if (!isText(token, ",")) return undefined; // export const ..., or a default import: a package's
  }
  return undefined;
}

/** `const { a } = await import("x")`, `(await import("x")).a`, `import("x").A`; anything else takes all of it. */
function dynamicUse(tokens: readonly Token[], at: number): RawUse | undefined {
  const path = tokens[at + 2];
  if (path?.kind !== "string") return undefined;
  let after = at + 4;
  if (isText(tokens[after], ")")) after++;
  if (isText(tokens[after], ".") && tokens[after + 1]?.kind === "word") {
    const name = tokens[after + 1]!.text;
    if (name !== "then") return { from: path.text, names: [name] };
  }
  const isDestructured =
    isText(tokens[at - 1], "await") && isText(tokens[at - 2], "=") && isText(tokens[at - 3], "}");
  if (!isDestructured) return { from: path.text, names: "*" };
  let opening = at - 3;
  while (!isText(tokens[opening], "{")) opening--;
  return { from: path.text, names: bracedNames(tokens, opening).map(({ inside }) => inside) };
}

/** { a, type B, c as d, e: f }: the names inside and outside of the braces. */
function bracedNames(
  tokens: readonly Token[],
  opening: number,
): { inside: string; outside: string }[] {
  const names: { inside: string; outside: string }[] = [];
  for (let at = opening + 1; at < tokens.length && !isText(tokens[at], "}"); at++) {
    if (isText(tokens[at], ",")) continue;
    if (isText(tokens[at], "type") && tokens[at + 1]?.kind === "word") at++;
    const inside = tokens[at]!.text;
    if (isText(tokens[at + 1], "as") || isText(tokens[at + 1], ":")) at += 2;
    names.push({ inside, outside: tokens[at]!.text });
  }
  return names;
}
