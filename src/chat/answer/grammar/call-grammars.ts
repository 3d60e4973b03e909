// The grammar of one call, for each form in which calls are written (format.ts).

import type {
  AnswerTool,
  CallForm,
  CallFormat,
  JsonForm,
  TaggedForm,
} from "../../../api/answer-format.ts";
import type { GrammarSource } from "../../../api/grammar-source.ts";
import { isObject, typesOf } from "../calls/call-reader.ts";
import { innerStart } from "../calls/calls.ts";
import {
  any,
  closingMark,
  comma,
  countedMark,
  either,
  exactMark,
  literal,
  mark,
  maybe,
  member,
  nothing,
  separated,
  sequence,
  several,
  space,
  without,
} from "./parts.ts";
import {
  bareKeys,
  isString,
  jsonValue,
  nestedItems,
  nestedTags,
  type Property,
  propertiesOf,
  pythonValue,
  taggedValue,
} from "./values.ts";

export interface CallGrammarOptions {
  readonly format: CallFormat;
  readonly tools: readonly AnswerTool[];
  /** Several calls in one answer. */
  readonly isParallel: boolean;
  /** As readers take them: outer marks may be missing. */
  readonly isLenient: boolean;
}

/** The arguments of a tool as JSON. */
export function argumentsJson({ parameters }: AnswerTool): GrammarSource {
  const given = isObject(parameters) ? parameters : {};
  const isTyped = ["type", "$ref", "anyOf", "oneOf", "allOf"].some((key) =>
    Object.hasOwn(given, key),
  );
  return { schema: isTyped ? given : { type: "object", ...given } };
}

type Write<F extends CallForm> = (
  tool: AnswerTool,
  form: F,
  options: CallGrammarOptions,
) => GrammarSource;

/** One call, without the marks around it. */
const bodies: { readonly [K in CallForm["kind"]]: Write<Extract<CallForm, { kind: K }>> } = {
  json: jsonCall,
  named(tool, form) {
    const id: GrammarSource = { regex: "[^\\s<\\[]{1,64}" };
    const before =
      form.idBeforeName === undefined ? nothing : sequence(id, literal(form.idBeforeName));
    const after =
      form.idAfterName === undefined ? nothing : maybe(sequence(literal(form.idAfterName), id));
    const name = literal(tool.name);
    return sequence(before, name, after, countedMark(form.afterName), argumentsJson(tool));
  },
  tagged: taggedCall,
  python: (tool) => {
    const properties = propertiesOf(tool.parameters);
    const items = properties?.map(({ key, schema, isRequired }) => ({
      isRequired,
      part: sequence(literal(`${key}=`), pythonValue(schema, tool.parameters)),
    }));
    const inside = items === undefined ? without(")") : separated(items, comma);
    return sequence(literal(`${tool.name}(`), space, inside, space, literal(")"));
  },
  "bare-keys": (tool, { quote }, { format }) => {
    const writing = bareKeys(quote, format.call.end.trim());
    const properties = propertiesOf(tool.parameters);
    if (properties === undefined) {
      return sequence(literal(`${tool.name}{`), without(format.call.end.trim()));
    }
    const items = nestedItems(properties, tool.parameters, writing);
    return sequence(literal(tool.name), writing.object(items));
  },
  nested: (tool, form) => {
    const writing = nestedTags(form.mark);
    const properties = propertiesOf(tool.parameters);
    const inside =
      properties === undefined
        ? writing.free
        : writing.object(nestedItems(properties, tool.parameters, writing));
    return sequence(literal(tool.name + form.afterName.first), inside);
  },
};

const bodyOf = (tool: AnswerTool, options: CallGrammarOptions): GrammarSource =>
  (bodies[options.format.form.kind] as Write<CallForm>)(tool, options.format.form, options);

/** All calls of an answer, with the marks around them. The first mark begins at once. */
export function callsGrammar(options: CallGrammarOptions): GrammarSource {
  const { format, tools, isParallel, isLenient } = options;
  const { section, call, separator, form } = format;
  const one = either(tools.map((tool) => bodyOf(tool, options)));
  const opening = section.start.trim() === "" ? nothing : closingMark(section.start);
  const start = isLenient && call.start.trim() !== "" ? maybe(opening) : opening;
  const end = section.end.trim() === "" ? space : sequence(space, maybe(closingMark(section.end)));
  if (form.kind === "python" || (form.kind === "json" && form.isList)) {
    const list = sequence(
      literal("["),
      space,
      several(one, comma, isParallel),
      space,
      literal("]"),
    );
    return sequence(start, list, end);
  }
  const isMarked = call.start.trim() !== "" || section.start.trim() !== "";
  const between = separator.trim() === "" ? space : mark(separator);
  const inner = isLenient ? innerStart(call.start) : undefined;
  const marks = [call.start, ...(inner === undefined ? [] : [inner])];
  const closing = closingMark(call.end);
  const whole = sequence(
    call.start.trim() === ""
      ? nothing
      : either(marks.map(form.kind === "json" ? closingMark : exactMark)),
    one,
    call.end.trim() === "" ? space : sequence(space, isLenient ? maybe(closing) : closing),
  );
  return sequence(start, several(whole, between, isParallel && isMarked), end);
}

/** The object of a call. An id may come first or last, as templates differ. */
function jsonCall(tool: AnswerTool, form: JsonForm): GrammarSource {
  const { nameKey, argumentsKey, idKey, innerKey } = form;
  if (nameKey === undefined) {
    return object(member(tool.name, argumentsJson(tool)));
  }
  const parts: GrammarSource[] = [member(nameKey, literal(JSON.stringify(tool.name)))];
  if (argumentsKey !== undefined) parts.push(comma, member(argumentsKey, argumentsJson(tool)));
  const id = idKey === undefined ? undefined : member(idKey, idValue);
  const first = id === undefined ? nothing : maybe(sequence(id, comma));
  const last = id === undefined ? nothing : maybe(sequence(comma, id));
  const type = maybe(sequence(member("type", literal('"function"')), comma));
  const own = sequence(...parts);
  if (innerKey === undefined) return object(type, first, own, last);
  return object(type, first, member(innerKey, object(own)), last);
}

const object = (...parts: readonly GrammarSource[]): GrammarSource =>
  sequence(literal("{"), space, ...parts, space, literal("}"));

/** Names and numbers that models give their calls. */
const idValue: GrammarSource = { regex: '"[A-Za-z0-9_.:-]{1,64}"|[0-9]{1,9}' };

function taggedCall(
  tool: AnswerTool,
  form: TaggedForm,
  _options: CallGrammarOptions,
): GrammarSource {
  const properties = propertiesOf(tool.parameters);
  const argument = (one: Property): GrammarSource =>
    sequence(space, taggedArgument(form, literal(one.key), one.schema, tool.parameters));
  const free = sequence(
    space,
    taggedArgument(form, { regex: "[^\\s<>\"'=]{1,128}" }, {}, tool.parameters),
  );
  const all =
    properties === undefined
      ? any(free)
      : sequence(
          ...properties.map((one) => (one.isRequired ? argument(one) : maybe(argument(one)))),
        );
  const isNamed = form.afterName.first.trim() !== "" || form.afterName.last !== undefined;
  const after = isNamed ? countedMark(form.afterName) : space;
  return sequence(literal(tool.name), after, all);
}

function taggedArgument(
  form: TaggedForm,
  key: GrammarSource,
  schema: Property["schema"],
  root: unknown,
): GrammarSource {
  const { afterKey, afterValue, beforeKey } = form;
  const end = afterValue.trim();
  const cdata = sequence(literal("<![CDATA["), without("]]>"), literal("]]>"));
  const orCdata = (value: GrammarSource): GrammarSource =>
    form.hasCdata ? either([value, cdata]) : value;
  const types = typesOf(schema);
  const mayBeText = types.size === 0 || types.has("string");
  const string = sequence(exactMark(afterKey.string), orCdata(taggedValue(schema, root, end)));
  const others = jsonTypes.map((type) => afterKey.other.replace('"number"', `"${type}"`));
  const other = sequence(
    either([...new Set(others)].map((text) => exactMark(text))),
    mayBeText ? { schema: { not: { type: "string" } } } : jsonValue(schema, root),
  );
  // A mark that says whether the value is text must be true.
  const isSplit = afterKey.string !== afterKey.other;
  const split = isString(schema) ? string : mayBeText ? either([string, other]) : other;
  const rest = isSplit ? split : string;
  // Whitespace before the end that the template does not have there is the string's.
  const lead = afterValue.slice(0, afterValue.indexOf(end));
  const close = mayBeText ? maybe(literal(lead)) : space;
  return sequence(literal(beforeKey.trimStart()), key, rest, close, literal(end));
}

const jsonTypes = ["number", "integer", "boolean", "object", "array", "null"];
