// The errors of a chat template: the position of the failure, the value there, the expected value, and advice. The library's own
// messages name no position, and some are JavaScript's messages about a mistake in the library.

import { LanternError, ModelError, messageOf, UsageError } from "../base/errors.ts";
import { builtInTemplates } from "./built-in.ts";
import { FILTER, TEST } from "./jinja-gaps.ts";
import { openBlocks, shortened, type Tag, type Token, tagNumbers } from "./tags.ts";

type Node = { type: string } & Record<string, unknown>;

const nextStep = (): string =>
  `Choose another template with chatTemplate (${Object.keys(builtInTemplates).join(", ")}), or correct this one`;

/** Thrown by a template through raise_exception. */
export class Refusal extends Error {}

/** A rendering that would cost too much; the message says why. */
export class Stopped extends Error {}

const placeOf = (tag: Tag | undefined): string =>
  tag === undefined ? "" : `line ${tag.line}, ${tag.text}: `;

export function tooLong(length: number, most: number): ModelError {
  return new ModelError(
    `chat template: got ${length} characters, expected at most ${most}. ${nextStep()}`,
  );
}

const isJavaScripts = (cause: unknown): boolean =>
  cause instanceof TypeError || cause instanceof RangeError || cause instanceof ReferenceError;

const isTooDeep = (cause: unknown): boolean =>
  cause instanceof RangeError && /call stack/i.test(cause.message);

const tooDeep = "its expressions or blocks are nested too deeply, expected some hundred levels";

/** `tokens`: undefined where the source is not even made of tokens. `parse` throws `cause` again. */
export function parseError(
  cause: unknown,
  tags: readonly Tag[],
  tokens: readonly Token[] | undefined,
  parse: (tokens: Token[]) => unknown,
): ModelError {
  const make = (tag: Tag | undefined, what: string): ModelError =>
    new ModelError(`chat template: it cannot be parsed: ${placeOf(tag)}${what}. ${nextStep()}`, {
      cause,
    });
  const faulty = tags.find(({ fault }) => fault !== undefined);
  if (tokens === undefined) {
    return make(faulty ?? tags.at(-1), faulty?.fault ?? messageOf(cause));
  }
  const at = failedToken(tokens, parse);
  const numbers = tagNumbers(tokens);
  const last = numbers.at(-1) ?? 0;
  const number = at === undefined ? undefined : (numbers[at] ?? last);
  if (isTooDeep(cause)) return make(tags[number ?? last], tooDeep);
  if (at === undefined || number === undefined) return make(faulty ?? tags.at(-1), said(cause));
  const open = openBlocks(tokens, Math.min(at - 1, tokens.length)).at(-1);
  const isAtEnd = at >= tokens.length;
  if (isAtEnd && faulty) return make(faulty, faulty.fault!);
  if (isAtEnd && open) {
    return make(tags[open.tag], `got the end of the template, expected {% end${open.name} %}`);
  }
  const isName = tokens[at]?.type === "Identifier" && tokens[at - 1]?.type === "OpenStatement";
  if (isName) return make(tags[number], statementProblem(tokens[at]!.value, open, tags));
  if (tags[number]?.fault !== undefined) return make(tags[number], tags[number].fault);
  return make(tags[number], `got ${tokenText(tokens[at])}, ${expectedBy(cause)}`);
}

function statementProblem(
  name: string,
  open: { name: string; tag: number } | undefined,
  tags: readonly Tag[],
): string {
  const isMiddle = name.startsWith("end") || name === "else" || name === "elif";
  if (!isMiddle) {
    return `got the statement ${JSON.stringify(name)}, expected if, for, set, macro, call, filter, break, continue or generation`;
  }
  return open === undefined
    ? `got ${name}, but no block is open here`
    : `got ${name}, expected {% end${open.name} %}, since ${tags[open.tag]!.text} of line ${tags[open.tag]!.line} is open`;
}

/** The token at which the parser fails: the last that it looks at. It is parsed once more for that. */
function failedToken(
  tokens: readonly Token[],
  parse: (tokens: Token[]) => unknown,
): number | undefined {
  let at: number | undefined;
  const watched = new Proxy([...tokens], {
    get(target, key) {
      if (typeof key === "string" && /^\d+$/.test(key)) at = Number(key);
      return Reflect.get(target, key);
    },
  });
  try {
    parse(watched);
  } catch {
    return at;
  }
  return undefined;
}

const symbols: Readonly<Record<string, string>> = {
  CloseStatement: "%}",
  OpenStatement: "{%",
  CloseExpression: "}}",
  OpenExpression: "{{",
  OpenParen: "(",
  CloseParen: ")",
  Colon: ":",
};

function tokenText(token: Token | undefined): string {
  if (token === undefined) return "the end of the template";
  if (token.type === "Text") return "text outside of a tag";
  if (token.type === "StringLiteral") return `the text ${JSON.stringify(shortened(token.value))}`;
  return token.value.startsWith(TEST) ? token.value.slice(TEST.length) : shortened(token.value);
}

function expectedBy(cause: unknown): string {
  const message = messageOf(cause);
  if (isJavaScripts(cause) || /^Unexpected token/.test(message)) {
    return "expected a value: a name, a text, a number, a list, an object or a bracket";
  }
  const symbol = /!== (\w+)\.$/.exec(message)?.[1];
  if (symbol !== undefined) return `expected ${symbols[symbol] ?? symbol}`;
  if (/^Unknown statement, got/.test(message)) {
    return "expected if, for, set, macro, call, filter, break, continue or generation";
  }
  return /^Expected/.test(message) ? `e${message.slice(1)}` : message;
}

/** The error to throw for an error of a rendering. `node` is the failed node, within `tag`. */
export function renderError(
  cause: unknown,
  tag: Tag | undefined,
  node: unknown,
): LanternError | Refusal {
  if (cause instanceof LanternError) return cause;
  if (cause instanceof Refusal) return new PlacedRefusal(cause, tag);
  if (cause instanceof Stopped) {
    const where = tag === undefined ? "" : ` (line ${tag.line}, ${tag.text})`;
    return new ModelError(
      `chat template: rendering was stopped: ${cause.message}${where}. The model's template is broken or hostile. ${nextStep()}`,
    );
  }
  const what = isTooDeep(cause)
    ? tooDeep
    : (namedProblem(node as Node | undefined, cause) ?? said(cause));
  return new ModelError(`chat template: rendering failed: ${placeOf(tag)}${what}. ${nextStep()}`, {
    cause,
  });
}

/** A refusal, and where the template raised it. */
export class PlacedRefusal extends Refusal {
  readonly error: UsageError;
  constructor(cause: Refusal, tag: Tag | undefined) {
    super(cause.message);
    const where = tag === undefined ? "" : ` (line ${tag.line} of the template)`;
    this.error = new UsageError(
      `chat template: it refuses this conversation: ${cause.message}${where}`,
      { cause },
    );
  }
}

/** Errors that are about a name. */
function namedProblem(node: Node | undefined, cause: unknown): string | undefined {
  const message = messageOf(cause);
  if (node === undefined) return undefined;
  if (node.type === "Break" || node.type === "Continue") {
    return `got ${node.type.toLowerCase()} outside of a loop, expected it within {% for %}`;
  }
  const callee = (node.callee ?? (node.call as Node | undefined)?.callee) as Node | undefined;
  if (callee && /^Cannot call something that is not a function/.test(message)) {
    const name = nodeText(callee);
    if (name.startsWith(TEST)) return unknown("test", name);
    if (name.startsWith(FILTER)) return unknown("filter", name);
    const got = typeWords(/got (\w+)$/.exec(message)?.[1] ?? "UndefinedValue");
    return `got a call of ${withoutPrefix(name)}, which is ${got}, expected a function, a method of the value, or a macro that is defined before`;
  }
  const test = /^Unknown test: (.*)$/s.exec(message)?.[1];
  if (test !== undefined) return unknown("test", test);
  const [, of, filter] = /^Unknown (\w+) filter: (.*)$/s.exec(message) ?? [];
  if (filter !== undefined) return unknown("filter", filter, ` for ${typeWords(of!)}`);
  const isUndefined = /on undefined values$|on null values$|UndefinedValue|NullValue/.test(message);
  if (node.type === "BinaryExpression" && isUndefined) {
    const { value } = node.operator as Node;
    const [left, right] = [nodeText(node.left as Node), nodeText(node.right as Node)];
    return `got ${left} ${String(value)} ${right} where one of them is undefined or none, expected values for both`;
  }
  return undefined;
}

const unknown = (kind: string, name: string, what = ""): string =>
  `got the ${kind} ${JSON.stringify(shortened(withoutPrefix(name)))}${what}, expected a ${kind} of Jinja that this build knows`;

/** A name or a member as it is written, as far as that is short. */
function nodeText(node: Node): string {
  if (node.type === "Identifier") return String(node.value);
  if (node.type === "StringLiteral") return JSON.stringify(shortened(String(node.value)));
  if (node.type === "IntegerLiteral" || node.type === "FloatLiteral") return String(node.value);
  if (node.type !== "MemberExpression") return "(...)";
  const [object, property] = [nodeText(node.object as Node), node.property as Node];
  return node.computed ? `${object}[${nodeText(property)}]` : `${object}.${nodeText(property)}`;
}

/** The library's message, or an explanation of JavaScript's error in the library. */
function said(cause: unknown): string {
  if (isJavaScripts(cause)) {
    return "a function, filter or operator got a value that it has no use for, expected one of another type";
  }
  return messageOf(cause)
    .replaceAll(/\b\w+Value\b/g, typeWords)
    .replaceAll(ownPrefix, "");
}

/** The prefix of the names of our own functions (jinja-gaps.ts). */
const ownPrefix = /\blantern (?:filter |is (?:not )?)?/g;
const withoutPrefix = (name: string): string => name.replaceAll(ownPrefix, "");

const typeNames: Readonly<Record<string, string>> = {
  UndefinedValue: "undefined",
  NullValue: "none",
  StringValue: "a text",
  NumericValue: "a number",
  IntegerValue: "an integer",
  FloatValue: "a float",
  BooleanValue: "true or false",
  ArrayValue: "a list",
  TupleValue: "a tuple",
  ObjectValue: "an object",
  NamespaceValue: "a namespace",
  FunctionValue: "a function",
  KeywordArgumentsValue: "an argument with a name",
};

function typeWords(name: string): string {
  return Object.hasOwn(typeNames, name) ? typeNames[name]! : name;
}
