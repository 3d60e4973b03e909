// The boundaries between the folders of src/ and apps/, which no compiler checks: who imports whom (import-rules.ts), where node:*
// and the platform's globals are, no cycles, no default exports, no enums.
// Held against: the table of import-rules.ts.

import { describe, expect, test } from "vitest";
import { platformGlobals, type Rule, rules } from "./import-rules.ts";
import {
  filesUnder,
  type Import,
  importsOf,
  isText,
  programFolders,
  resolveImport,
  type SourceFile,
  sourceFiles,
  type Token,
  tokenize,
} from "./scan.ts";

interface Scanned extends SourceFile {
  readonly tokens: readonly Token[];
  readonly imports: readonly Import[];
}

const files: Scanned[] = [
  ...sourceFiles(...programFolders),
  // The scanner knows no JSX: only the imports of a .tsx file are looked at.
  ...filesUnder(["apps/web/src"], [".ts", ".tsx"]).map(({ path, text }) => ({
    path,
    text: (text.match(/^import [\s\S]*?;$|\bimport\("[^"]+"\)/gm) ?? []).join("\n"),
  })),
].map(scan);
const isApp = ({ of }: Rule): boolean => of.startsWith("apps/");

function scan(file: SourceFile): Scanned {
  const tokens = tokenize(file.text);
  return { ...file, tokens, imports: importsOf(tokens) };
}

test("every file has a rule, and every rule has files", () => {
  const uncovered = files.filter((file) => ruleOf(file.path) === undefined);
  expect(
    uncovered.map((file) => file.path),
    "add a row to import-rules.ts",
  ).toEqual([]);
  const unused = rules.filter((rule) => !files.some((file) => ruleOf(file.path) === rule));
  expect(unused.map((rule) => rule.of)).toEqual([]);
});

describe.each(rules)("$of", (rule) => {
  test("imports only what its rule allows", () => {
    const own = files.filter((file) => ruleOf(file.path) === rule);
    expect(own.flatMap((file) => violations(file, rule)).join("\n")).toBe("");
  });
});

test("apps use the public API, base, options, platform, the catalog and each other", () => {
  const common = /^(index\.ts$|(base|options|platform|catalog|apps)(\/|$))/;
  // The page computes limits, reads schemas and draws pictures without a server: modules of the library that need no engine.
  const ofPage = [
    "limits",
    "grammar",
    "tools/limits/model-facts.ts",
    "tools/perplexity/picture.ts",
  ];
  const others = rules
    .filter(isApp)
    .flatMap(({ of, may }) => may.map(({ path }) => ({ of, path })))
    .filter(({ of, path }) => !common.test(path) && !(of === "apps/web" && ofPage.includes(path)));
  expect(others).toEqual([]);
  const upwards = rules.filter(
    (rule) => !isApp(rule) && rule.may.some(({ path }) => path.startsWith("apps/")),
  );
  expect(upwards).toEqual([]);
});

test("only src/platform names node:* and the platform's globals", () => {
  const found = files
    .filter((file) => !file.path.startsWith("src/platform/"))
    .flatMap((file) => [
      ...file.imports
        .filter(({ from }) => from.startsWith("node:"))
        .map(({ from, line }) => `${file.path}:${line} imports ${from}`),
      ...globalUses(file.tokens).map(({ text, line }) => `${file.path}:${line} uses ${text}`),
    ]);
  expect(
    found.join("\n"),
    "everything but src/platform runs in a browser unchanged: ask the platform instead",
  ).toBe("");
});

test("no file imports itself in a circle, types included", () => {
  expect(cycles(fileGraph(files)).join("\n"), "move what both need into a third file").toBe("");
});

test("no folder imports itself in a circle: every arrow runs down", () => {
  expect(cycles(roomGraph(files)).join("\n"), "move what both need into a lower folder").toBe("");
});

test("src has fewer than 24 rooms, two of them files", () => {
  const rooms = [...roomGraph(files).keys()].filter((name) => !name.startsWith("apps/"));
  expect(rooms.length).toBeLessThan(30);
  const loose = rooms.filter((name) => name.endsWith(".ts"));
  expect(new Set(loose)).toEqual(new Set(["index.ts", "open.ts"]));
});

test("src has at most 10 floors", () => {
  const graph = roomGraph(files.filter(({ path }) => path.startsWith("src/")));
  const floors = new Map<string, number>();
  const floorOf = (room: string): number => {
    const known = floors.get(room);
    if (known !== undefined) return known;
    const floor = 1 + Math.max(0, ...Array.from(graph.get(room) ?? [], floorOf));
    floors.set(room, floor);
    return floor;
  };
  const highest = Math.max(...Array.from(graph.keys(), floorOf));
  expect(highest, "a room is one floor above the highest room that it imports").toBeLessThanOrEqual(
    10,
  );
});

test("no default exports (except a tool's configuration), no enums", () => {
  const others = sourceFiles("test", "scripts", "bench").map(scan);
  const everywhere = [...files, ...others].filter(({ path }) => !path.endsWith(".config.ts"));
  const found = everywhere.flatMap(({ path, tokens }) =>
    tokens.flatMap((token, at) => {
      const next = tokens[at + 1];
      if (isText(token, "export") && isText(next, "default")) {
        return [`${path}:${token.line} has a default export: give it a name`];
      }
      const isEnum = isText(token, "enum") && next?.kind === "word" && isText(tokens[at + 2], "{");
      return isEnum ? [`${path}:${token.line} has an enum: use a union of strings`] : [];
    }),
  );
  expect(found.join("\n")).toBe("");
});

// A rule is no better than what is under it.
describe("the rules", () => {
  const refused = (path: string, text: string) => {
    const file = scan({ path, text });
    return violations(file, ruleOf(path)!).length > 0;
  };

  test("refuse what they should, and only that", () => {
    const backend = "../backends/reference/reference.ts";
    expect(refused("src/models/x.ts", `import { ReferenceBackend } from "${backend}";`)).toBe(true);
    expect(refused("src/models/x.ts", `import type { A } from "${backend}";`)).toBe(true);
    expect(refused("src/engine/x.ts", `import type { A } from "${backend}";`)).toBe(true);
    expect(refused("src/backends/x/x.ts", 'import "../reference/reference.ts";')).toBe(true);
    expect(refused("src/backends/table.ts", 'import "./reference/reference.ts";')).toBe(false);
    expect(refused("src/formats/x.ts", 'import { A } from "../platform/platform.ts";')).toBe(true);
    expect(refused("src/formats/x.ts", 'import type { A } from "../platform/platform.ts";')).toBe(
      false,
    );
    expect(refused("apps/cli/x.ts", 'import "../engine/engine.ts";')).toBe(true);
    expect(refused("src/kernels/ir/x.ts", 'import "../lower/wasm.ts";')).toBe(true);
    expect(refused("src/kernels/asm/x.ts", 'import "../ir/ops.ts";')).toBe(true);
    expect(refused("src/kernels/lower/x.ts", 'import "../ir/ops.ts";')).toBe(false);
    expect(refused("src/kernels/x.ts", 'import "./lower/wasm.ts";')).toBe(false);
    expect(refused("src/kernels/x.ts", 'import "../graph/graph.ts";')).toBe(true);
    expect(refused("src/base/x.ts", 'import "commander";')).toBe(true);
    expect(refused("apps/cli/x.ts", 'import "commander";')).toBe(false);
  });
});

describe("the scanner", () => {
  test("finds every form of import, and whether it is there at run time", () => {
    const text = [
      'import { a } from "./a.ts";',
      'import type { B } from "./b.ts";',
      'import c, { type D } from "./c.ts";',
      'import * as e from "./e.ts";',
      'import "./f.ts";',
      'export { g } from "./g.ts";',
      'export type * from "./h.ts";',
      'export * from "./i.ts";',
      "const j = await import('./j.ts');",
      "import type from './k.ts';",
      "const l = import.meta.url, m = object.import('./no.ts');",
    ].join("\n");
    expect(importsOf(tokenize(text)).map(({ from, typesOnly }) => [from, typesOnly])).toEqual([
      ["./a.ts", false],
      ["./b.ts", true],
      ["./c.ts", false],
      ["./e.ts", false],
      ["./f.ts", false],
      ["./g.ts", false],
      ["./h.ts", true],
      ["./i.ts", false],
      ["./j.ts", false],
      ["./k.ts", false],
    ]);
  });

  test("takes nothing from comments, strings, templates and regular expressions", () => {
    const text = [
      '// import "./comment.ts"',
      '/* import "./block.ts" */',
      "const a = \"import './string.ts'\", b = 'it\\'s';",
      // biome-ignore lint/suspicious/noTemplateCurlyInString: it is a program's text
      'const c = `import "./template.ts" ${"}" + `${import("./real.ts")}`} x`;',
      'const d = /["/]import "x"/.test(a) ? a[0]! / 2 / 1 : /`/;',
      "export const from = { from: 1 }, type = 2;",
    ].join("\n");
    expect(importsOf(tokenize(text))).toEqual([{ from: "./real.ts", typesOnly: false, line: 4 }]);
  });

  test("finds cycles of any length, among files and among folders", () => {
    const file = (path: string, text: string) => scan({ path: `src/${path}`, text });
    const circle = [
      file("a.ts", 'import { b } from "./b.ts";'),
      file("b.ts", 'export * from "./c/c.ts";'),
      file("c/c.ts", 'import type { a } from "../a.ts";\nimport { e } from "../d/e.ts";'),
      file("c/f.ts", ""),
      file("d/e.ts", 'const f = await import("../c/f.ts");'),
    ];
    expect(cycles(fileGraph(circle))).toEqual(["src/a.ts -> src/b.ts -> src/c/c.ts -> src/a.ts"]);
    expect(cycles(fileGraph(circle.slice(1)))).toEqual([]);
    expect(cycles(roomGraph(circle.slice(1)))).toEqual(["c -> d -> c"]);
  });

  test("tells a global from a property of that name", () => {
    const uses = (text: string) => globalUses(tokenize(text)).length;
    expect(uses("process.exit(1)")).toBe(1);
    expect(uses("typeof navigator")).toBe(1);
    expect(uses("a.process + b?.fetch(c) + { fetch: c, d: a as typeof fetch }")).toBe(0);
  });
});

/** The rule of a file's folder under src/, or of the file itself when it lies at the top. */
function ruleOf(path: string): Rule | undefined {
  const inside = insideOf(path);
  return rules
    .filter(({ of }) => inside === of || inside.startsWith(`${of}/`))
    .reduce<Rule | undefined>((a, b) => (a && a.of.length > b.of.length ? a : b), undefined);
}

/** As rules name it: "base/errors.ts", "apps/cli/main.ts". */
const insideOf = (path: string): string => path.replace(/^src\//, "");

function violations(file: Scanned, rule: Rule): string[] {
  return file.imports.flatMap((imported) => {
    const reason = refusal(file, rule, imported);
    if (reason === undefined) return [];
    const may = rule.may.map(({ path, typesOnly }) => (typesOnly ? `${path} (types)` : path));
    return [
      `${file.path}:${imported.line} imports "${imported.from}": ${reason}.`,
      `  ${rule.of} may import: ${[...may, ...rule.npm].join(", ") || "nothing"}, because ${rule.why}`,
    ];
  });
}

/** undefined where the import is fine. */
function refusal(file: Scanned, rule: Rule, { from, typesOnly }: Import): string | undefined {
  const target = resolveImport(file.path, from);
  if (target === undefined) {
    if (from.startsWith("node:")) return undefined; // has a test of its own
    // Of a package in a page any file: its styles, its languages.
    const isListed =
      rule.npm.includes(from) ||
      rule.npm.some((name) => rule.of === "apps/web" && from.startsWith(`${name}/`));
    return isListed ? undefined : "a package that is not on its list";
  }
  if (!files.some(({ path }) => path === target)) return "no such file";
  if (ruleOf(target) === rule) {
    const [mine, other] = [file.path.split("/"), target.split("/")];
    const isApart = rule.apart && mine.length > 3 && other.length > 3 && mine[2] !== other[2];
    return isApart ? `${mine[2]} and ${other[2]} must not know each other` : undefined;
  }
  const inside = insideOf(target);
  const allowed = rule.may.filter(({ path }) => inside === path || inside.startsWith(`${path}/`));
  if (allowed.some((each) => typesOnly || !each.typesOnly)) return undefined;
  return allowed.length > 0 ? "only its types, with `import type`" : "not on its list";
}

/** Where a token is one of the platform's globals, not a property, an object's key or a type of that name. */
function globalUses(tokens: readonly Token[]): Token[] {
  return tokens.filter((token, at) => {
    if (token.kind !== "word" || !platformGlobals.includes(token.text)) return false;
    const [before, earlier, next] = [tokens[at - 1], tokens[at - 2], tokens[at + 1]];
    if (isText(before, ".") || isText(next, ":")) return false;
    return !(isText(before, "typeof") && (isText(earlier, "as") || isText(earlier, ":")));
  });
}

/** Each cycle of imports that exist at run time, once. */
type ImportGraph = ReadonlyMap<string, ReadonlySet<string>>;

function fileGraph(scanned: readonly Scanned[]): ImportGraph {
  return new Map(
    scanned.map(({ path, imports }) => {
      const targets = imports.map(({ from }) => resolveImport(path, from));
      return [path, new Set(targets.filter((target) => target !== undefined))];
    }),
  );
}

/** The folders at the top of src/, its loose files, and the apps, as rooms. */
function roomGraph(scanned: readonly Scanned[]): ImportGraph {
  const roomOf = (path: string) =>
    insideOf(path)
      .split("/")
      .slice(0, path.startsWith("apps/") ? 2 : 1)
      .join("/");
  const rooms = new Map<string, Set<string>>(scanned.map(({ path }) => [roomOf(path), new Set()]));
  for (const [path, targets] of fileGraph(scanned)) {
    const room = roomOf(path);
    for (const target of targets) if (roomOf(target) !== room) rooms.get(room)!.add(roomOf(target));
  }
  return rooms;
}

function cycles(graph: ImportGraph): string[] {
  const found: string[] = [];
  const done = new Set<string>();
  const trail: string[] = [];
  const visit = (name: string): void => {
    const targets = graph.get(name);
    if (!targets || done.has(name)) return;
    if (trail.includes(name)) {
      found.push([...trail.slice(trail.indexOf(name)), name].join(" -> "));
      return;
    }
    trail.push(name);
    for (const target of targets) visit(target);
    trail.pop();
    done.add(name);
  };
  for (const name of graph.keys()) visit(name);
  return found;
}
