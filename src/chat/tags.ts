// Finds the positions of tokens and nodes in a chat template. The tokens and nodes of @huggingface/jinja have no positions, so the
// tags are found once more in the source, in the order in which the library's lexer finds them: its nth opening token begins the
// nth tag. That gives each token and each node of a block its tag, for errors of the parser and of the rendering.

export interface Tag {
  readonly line: number;
  /** As it is written, and shortened. */
  readonly text: string;
  /** The error in it, if the source ends or cannot be read within it. */
  readonly fault?: string;
}

/** A token of the library. */
export interface Token {
  value: string;
  type: string;
}

type Node = { type: string } & Record<string, unknown>;

const LONGEST_TEXT = 60;

const kinds: Readonly<Record<string, string>> = { "{%": "%}", "{{": "}}", "{#": "#}" };
/** The library removes these tags before it reads the rest. */
const removed = /^\{%-?\s*(?:end)?generation\s*-?%\}/;

/** All tags of a source, up to the first that is faulty. */
export function tagsOf(source: string): Tag[] {
  const tags: Tag[] = [];
  let [line, counted] = [1, 0];
  const add = (from: number, to: number, fault?: string): void => {
    for (; counted < from; counted++) if (source[counted] === "\n") line++;
    const text = shortened(source.slice(from, to));
    tags.push(fault === undefined ? { line, text } : { line, text, fault });
  };
  let depth = 0; // of curly brackets; only {{ begins again, as in the library
  for (let at = nextTag(source, 0); at < source.length; at = nextTag(source, at)) {
    const generation = removed.exec(source.slice(at, at + 100));
    if (generation) {
      at += generation[0].length;
      continue;
    }
    const open = source.slice(at, at + 2);
    if (open === "{{") depth = 0;
    const end = open === "{#" ? endOfComment(source, at) : endOfTag(source, at + 2, depth);
    depth = end.depth;
    const next =
      end.at < source.length ? source.slice(end.at, end.at + 2) : "the end of the template";
    add(
      at,
      end.at,
      end.fault ?? (end.isClosed ? undefined : `got ${next}, expected ${kinds[open]}`),
    );
    if (end.fault !== undefined || end.at >= source.length) break;
    // A tag that begins within another is the next one; otherwise text follows.
    at = end.at;
  }
  return tags;
}

function nextTag(source: string, from: number): number {
  for (let at = source.indexOf("{", from); at >= 0; at = source.indexOf("{", at + 1)) {
    if (kinds[source.slice(at, at + 2)] !== undefined) return at;
  }
  return source.length;
}

interface End {
  readonly at: number;
  readonly depth: number;
  readonly isClosed: boolean;
  readonly fault?: string;
}

function endOfComment(source: string, from: number): End {
  const at = source.indexOf("#}", from + 2);
  return at < 0
    ? { at: source.length, depth: 0, isClosed: false }
    : { at: at + 2, depth: 0, isClosed: true };
}

function endOfTag(source: string, from: number, curlyDepth: number): End {
  let depth = curlyDepth;
  for (let at = from; at < source.length; ) {
    const char = source[at]!;
    const two = source.slice(at, at + 2);
    if (two === "%}" || (two === "}}" && depth <= 0)) return { at: at + 2, depth, isClosed: true };
    if (kinds[two] !== undefined) return { at, depth, isClosed: false };
    if (char === '"' || char === "'") {
      const end = endOfString(source, at);
      if (end.fault !== undefined) return { ...end, depth, isClosed: false };
      at = end.at;
      continue;
    }
    if (char === "{") depth++;
    if (char === "}") depth--;
    const isKnown = /[\w\s(){}[\],.:|<>=+\-~*/%]/.test(char) || two === "!=";
    if (!isKnown) {
      return {
        at: at + 1,
        depth,
        isClosed: false,
        fault: `got ${show(char)}, expected an operator or a value`,
      };
    }
    at += two === "!=" ? 2 : 1;
  }
  return { at: source.length, depth, isClosed: false };
}

function endOfString(source: string, from: number): { at: number; fault?: string } {
  const quote = source[from]!;
  for (let at = from + 1; at < source.length; at++) {
    const char = source[at]!;
    if (char === quote) return { at: at + 1 };
    if (char !== "\\") continue;
    const escaped = source[++at] ?? "";
    if (!"ntrbfv'\"\\".includes(escaped)) {
      const fault = `got the escape \\${escaped}, expected one of \\n \\t \\r \\b \\f \\v \\' \\" \\\\`;
      return { at: at + 1, fault };
    }
  }
  return { at: source.length, fault: `got the end of the template in a text, expected ${quote}` };
}

export function shortened(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length > LONGEST_TEXT ? `${line.slice(0, LONGEST_TEXT)}...` : line;
}

const show = (text: string): string => JSON.stringify(text);

const opening: ReadonlySet<string> = new Set(["OpenStatement", "OpenExpression", "Comment"]);

/** For each token, which tag it is in, or the last before it. */
export function tagNumbers(tokens: readonly Token[]): number[] {
  let tag = -1;
  return tokens.map(({ type }) => (opening.has(type) ? ++tag : tag));
}

/** A block that is open at a tag: {% if %} without its {% endif %}. */
export interface OpenBlock {
  readonly name: string;
  readonly tag: number;
}

const blocks: ReadonlySet<string> = new Set("if for macro call filter set".split(" "));

/** The blocks that tokens[0, end) leave open, the innermost last. */
export function openBlocks(tokens: readonly Token[], end: number): OpenBlock[] {
  const open: OpenBlock[] = [];
  const numbers = tagNumbers(tokens);
  for (let at = 0; at < end; at++) {
    if (tokens[at]!.type !== "OpenStatement") continue;
    const name = tokens[at + 1]?.type === "Identifier" ? tokens[at + 1]!.value : "";
    if (name === `end${open.at(-1)?.name}`) open.pop();
    else if (blocks.has(name) && !(name === "set" && isAssignment(tokens, at))) {
      open.push({ name, tag: numbers[at]! });
    }
  }
  return open;
}

function isAssignment(tokens: readonly Token[], from: number): boolean {
  let depth = 0;
  for (let at = from; at < tokens.length && tokens[at]!.type !== "CloseStatement"; at++) {
    const { type } = tokens[at]!;
    if (type === "OpenParen") depth++;
    if (type === "CloseParen") depth--;
    if (type === "Equals" && depth === 0) return true;
  }
  return false;
}

/** The tag of each node that is an entry of a block. `tokens` are the tokens that `program` was parsed from. */
export function tagsOfNodes(
  program: unknown,
  tokens: readonly Token[],
  tags: readonly Tag[],
): Map<unknown, Tag> {
  const found = new Map<unknown, Tag>();
  let block = { node: program as Node, entries: (program as Node).body as Node[], next: 0 };
  const outer: (typeof block)[] = [];
  let tag = -1;
  const note = (node: Node | undefined): Node => {
    if (node && tags[tag]) found.set(node, tags[tag]!);
    return node!;
  };
  tokens.forEach(({ type }, at) => {
    if (type === "Text") block.next++;
    if (!opening.has(type)) return;
    tag++;
    const name = type === "OpenStatement" ? tokens[at + 1]!.value : "";
    if (name === "elif") {
      const node = note((block.node.alternate as Node[])[0]);
      block = { node, entries: node.body as Node[], next: 0 };
    } else if (name === "else") {
      const entries = (block.node.alternate ?? block.node.defaultBlock) as Node[];
      block = { node: block.node, entries, next: 0 };
    } else if (name.startsWith("end") && type === "OpenStatement") {
      block = outer.pop()!;
    } else {
      const node = note(block.entries[block.next++]);
      if (!blocks.has(name) || (name === "set" && isAssignment(tokens, at))) return;
      outer.push(block);
      block = { node, entries: node.body as Node[], next: 0 };
    }
  });
  return found;
}
