// Closes gaps between @huggingface/jinja and the Jinja that chat templates are written for, by rewriting the parsed template:
//
//   for x in tools, tools|length   an undefined (or none) sequence is an empty one
//   '...'.format(x)                Python's, for {} and {0}
//   raise_exception(...)           goes to our own function, so that a template's refusal can be told from a fault
//   strftime_now(...)              ours as well: the library's months are in the reader's language
//   list.append(x)                 Python's; also in `set _ = list.append(x)`
//   x|string                       of lists and objects, too, as Python writes them
//   list|min, list|max             the smallest and the largest
//   {0: ...}|dictsort              keys that are numbers become texts, and numbers again where they are sorted
//   for a, b in [(1, 2)]           tuples are lists
//   {{ true }}, {{ list }}, a ~ b  texts as Python writes them; none is written as an empty text
//   not []                         empty lists and objects are false
//   x is divisibleby(3)            tests with arguments (jinja-tests.ts), before the template is parsed
//   list|select(...), x|capitalize, args.items(), 'ab' * 3, ...
//                                  filters and methods of our own (jinja-filters.ts)
//
// Nodes are the library's own, plain objects told apart by `type`.

import { OWN_TESTS } from "./jinja-tests.ts";

/** Names that no template can use by accident; jinja-functions.ts and template.ts define them. */
export const RAISE = "lantern raise";
export const STRFTIME = "lantern strftime";
export const FORMAT = "lantern format";
export const APPEND = "lantern append";
export const TEXT = "lantern text";
export const WRITTEN = "lantern written";
export const SMALLEST = "lantern smallest";
export const LARGEST = "lantern largest";
export const SORTED_PAIRS = "lantern sorted pairs";
export const NOT = "lantern not";
export const LIST = "lantern list";
export const OBJECT = "lantern object";
/** Followed by the name of a filter, or of a test. */
export const FILTER = "lantern filter ";
export const TEST = "lantern is ";

type Node = { type: string } & Record<string, unknown>;

const SEQUENCE_FILTERS: ReadonlySet<unknown> = new Set(
  "length count list selectattr rejectattr select reject map join".split(" "),
);

/** The value that these filters see instead of an undefined one. */
const UNDEFINED_AS: ReadonlyMap<unknown, string> = new Map([
  ..."sort reverse unique min max".split(" ").map((name) => [name, LIST] as const),
  ["items", OBJECT],
  ..."title replace trim upper lower".split(" ").map((name) => [name, TEXT] as const),
]);

const RENAMED: ReadonlyMap<unknown, string> = new Map([
  ["raise_exception", RAISE],
  ["strftime_now", STRFTIME],
]);

/** Methods that become calls of our own functions. */
const METHODS: ReadonlyMap<unknown, string> = new Map([
  ["format", FORMAT],
  ["append", APPEND],
  // Of objects: a member of the same name is no method.
  ..."keys values items get pop rsplit capitalize"
    .split(" ")
    .map((name) => [name, FILTER + name] as const),
]);

/** Filters that become calls of our own functions. */
const CALLED_FILTERS: ReadonlyMap<unknown, string> = new Map([
  ["string", TEXT],
  ["min", SMALLEST],
  ["max", LARGEST],
  ["dictsort", SORTED_PAIRS],
  ..."select reject selectattr rejectattr capitalize first last sum wordcount"
    .split(" ")
    .map((name) => [name, FILTER + name] as const),
]);

/** The library knows these without arguments, or with some of them. */
const CALLED_WITH_ARGS: ReadonlyMap<unknown, string> = new Map(
  "trim int map".split(" ").map((name) => [name, FILTER + name] as const),
);
const NOT_WITH_ARGS: ReadonlySet<unknown> = new Set(["string", "dictsort"]);

const FILTER_ALIASES: ReadonlyMap<unknown, string> = new Map([
  ["count", "length"],
  ["d", "default"],
]);

/** Nodes with a value that is not written, or is a text. */
const NOT_WRITTEN: ReadonlySet<string> = new Set(
  "Program If For Break Continue Set Macro CallStatement FilterStatement Comment StringLiteral".split(
    " ",
  ),
);

const rewrites: Readonly<Record<string, (node: Node) => void>> = {
  For(node) {
    const iterable = node.iterable as Node;
    if (iterable.type === "SelectExpression") iterable.lhs = orEmpty(iterable.lhs);
    else node.iterable = orEmpty(iterable);
  },
  FilterExpression(node) {
    const filter = node.filter as Node;
    const isCall = filter.type === "CallExpression";
    const named = isCall ? (filter.callee as Node) : filter;
    named.value = FILTER_ALIASES.get(named.value) ?? named.value;
    const name = named.value;
    const args = isCall ? (filter.args as Node[]) : [];
    if (name === "join") mapAttribute(node, args);
    const instead = UNDEFINED_AS.get(name);
    if (instead !== undefined) node.operand = call(instead, [node.operand]);
    else if (SEQUENCE_FILTERS.has(name)) node.operand = orEmpty(node.operand);
    if (isTestFilter(name)) {
      become(node, call(name, [node.operand, ...args]));
      return;
    }
    const called = CALLED_FILTERS.get(name) ?? (isCall ? CALLED_WITH_ARGS.get(name) : undefined);
    if (called === undefined || (isCall && NOT_WITH_ARGS.has(name))) return;
    become(node, call(called, [node.operand, ...args]));
  },
  TestExpression(node) {
    const { value } = node.test as Node;
    if (!OWN_TESTS.has(String(value))) return;
    const test = call(TEST + String(value), [node.operand]);
    become(node, node.negate ? call(NOT, [test]) : test);
  },
  UnaryExpression(node) {
    if ((node.operator as Node).value === "not") become(node, call(NOT, [node.argument]));
  },
  BinaryExpression(node) {
    const { value } = node.operator as Node;
    if (value === "*") become(node, call(`${FILTER}times`, [node.left, node.right]));
    if (value !== "~") return;
    node.left = call(TEXT, [node.left]);
    node.right = call(TEXT, [node.right]);
  },
  TupleLiteral(node) {
    // The variables of a loop are a tuple, too, and stay one.
    if ((node.value as Node[]).some((part) => part.type !== "Identifier")) {
      node.type = "ArrayLiteral";
    }
  },
  ObjectLiteral(node) {
    for (const key of (node.value as Map<Node, Node>).keys()) {
      if (key.type !== "IntegerLiteral") continue;
      key.type = "StringLiteral";
      key.value = String(key.value);
    }
  },
  CallExpression(node) {
    const callee = node.callee as Node;
    const renamed = callee.type === "Identifier" ? RENAMED.get(callee.value) : undefined;
    if (renamed) node.callee = identifier(renamed);
    const property = callee.property as Node | undefined;
    if (callee.type !== "MemberExpression" || callee.computed) return;
    const method = METHODS.get(property?.value);
    if (method === undefined) return;
    node.args = [callee.object, ...(node.args as unknown[])];
    node.callee = identifier(method);
  },
};

/** Rewrites the tree in place. */
export function closeGaps(tree: unknown): void {
  if (Array.isArray(tree)) tree.forEach(closeGaps);
  else if (tree instanceof Map) {
    for (const [key, value] of tree) {
      closeGaps(key);
      closeGaps(value);
    }
  } else if (typeof tree === "object" && tree !== null) {
    const node = tree as Node;
    Object.values(node).forEach(closeGaps);
    for (const block of [node.body, node.alternate, node.defaultBlock]) {
      if (Array.isArray(block)) writeAsText(block as Node[]);
    }
    const { type } = node;
    if (typeof type === "string" && Object.hasOwn(rewrites, type)) rewrites[type]!(node);
  }
}

/** A token of the library. */
interface Token {
  value: string;
  type: string;
}

/** `x is name(...)` becomes the filter `x|(is name)(...)`, since the library's parser knows no tests with arguments. */
export function closeTestGaps(tokens: Token[]): void {
  for (let at = tokens.length - 3; at >= 0; at--) {
    const [is, not] = [tokens[at]!, tokens[at + 1]!];
    if (is.type !== "Identifier" || is.value !== "is") continue;
    const isNegated = not.type === "Identifier" && not.value === "not";
    const name = tokens[at + (isNegated ? 2 : 1)]!;
    if (name.type !== "Identifier" || tokens[at + (isNegated ? 3 : 2)]?.type !== "OpenParen") {
      continue;
    }
    const prefix = isNegated ? `${TEST}not ` : TEST;
    tokens.splice(
      at,
      isNegated ? 3 : 2,
      { value: "|", type: "Pipe" },
      { value: prefix + name.value, type: "Identifier" },
    );
  }
}

/** list|join(attribute="x") is list|map(attribute="x")|join. */
function mapAttribute(node: Node, args: Node[]): void {
  const at = args.findIndex(({ key }) => (key as Node | undefined)?.value === "attribute");
  if (at < 0) return;
  node.operand = call(`${FILTER}map`, [node.operand, ...args.splice(at, 1)]);
}

function writeAsText(block: Node[]): void {
  for (const [at, node] of block.entries()) {
    if (!NOT_WRITTEN.has(node.type)) block[at] = call(WRITTEN, [node]);
  }
}

const isTestFilter = (name: unknown): name is string =>
  typeof name === "string" && name.startsWith(TEST);

function become(node: Node, other: Node): void {
  Object.assign(node, other);
}

function call(name: string, args: unknown[]): Node {
  return { type: "CallExpression", callee: identifier(name), args };
}

function identifier(value: string): Node {
  return { type: "Identifier", value };
}

function orEmpty(left: unknown): Node {
  const right = { type: "ArrayLiteral", value: [] };
  return { type: "BinaryExpression", operator: { value: "or" }, left, right };
}
