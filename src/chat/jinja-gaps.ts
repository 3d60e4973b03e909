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
//
// Nodes are the library's own, plain objects told apart by `type`.

/** Names that no template can use by accident; template.ts defines them. */
export const RAISE = "lantern raise";
export const STRFTIME = "lantern strftime";
export const FORMAT = "lantern format";
export const APPEND = "lantern append";
export const TEXT = "lantern text";
export const SMALLEST = "lantern smallest";
export const LARGEST = "lantern largest";
export const SORTED_PAIRS = "lantern sorted pairs";

type Node = { type: string } & Record<string, unknown>;

const SEQUENCE_FILTERS: ReadonlySet<unknown> = new Set(
  "length count list selectattr rejectattr select reject map join".split(" "),
);

const RENAMED: ReadonlyMap<unknown, string> = new Map([
  ["raise_exception", RAISE],
  ["strftime_now", STRFTIME],
]);

/** Methods that become calls of our own functions. */
const METHODS: ReadonlyMap<unknown, string> = new Map([
  ["format", FORMAT],
  ["append", APPEND],
]);

/** Filters that become calls of our own functions. */
const CALLED_FILTERS: ReadonlyMap<unknown, string> = new Map([
  ["string", TEXT],
  ["min", SMALLEST],
  ["max", LARGEST],
  ["dictsort", SORTED_PAIRS],
]);

const rewrites: Readonly<Record<string, (node: Node) => void>> = {
  For(node) {
    const iterable = node.iterable as Node;
    if (iterable.type === "SelectExpression") iterable.lhs = orEmpty(iterable.lhs);
    else node.iterable = orEmpty(iterable);
  },
  FilterExpression(node) {
    const filter = node.filter as Node;
    const name = filter.type === "CallExpression" ? (filter.callee as Node).value : filter.value;
    if (SEQUENCE_FILTERS.has(name)) node.operand = orEmpty(node.operand);
    const called = filter.type === "Identifier" ? CALLED_FILTERS.get(name) : undefined;
    if (called === undefined) return;
    node.type = "CallExpression";
    node.callee = identifier(called);
    node.args = [node.operand];
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
    Object.values(tree).forEach(closeGaps);
    const { type } = tree as Node;
    if (typeof type === "string" && Object.hasOwn(rewrites, type)) rewrites[type]!(tree as Node);
  }
}

/** Python's str.format for positional fields. */
export function formatPositional(text: string, values: readonly unknown[]): string {
  let next = 0;
  return text.replace(/\{\{|\}\}|\{(\d*)\}/g, (field, index: string | undefined) => {
    if (index === undefined) return field[0]!;
    return String(values[index === "" ? next++ : Number(index)] ?? "");
  });
}

function identifier(value: string): Node {
  return { type: "Identifier", value };
}

function orEmpty(left: unknown): Node {
  const right = { type: "ArrayLiteral", value: [] };
  return { type: "BinaryExpression", operator: { value: "or" }, left, right };
}
