// Public types for answers: how a model writes them: the beginnings and ends of its reasoning, its plain text and its tool calls, and the form of
// calls. src/chat/answer finds it from the model's chat template (derive.ts) and reads answers by it (answer-reader.ts).
//
// Markers are kept as the template writes them, whitespace included. Models write less exactly than templates: readers look for
// a marker without the whitespace around it, and then take the whitespace if it is there.

/** Text around a part of an answer. */
export interface Wrapper {
  readonly start: string;
  readonly end: string;
}

export interface ReasoningMarks extends Wrapper {
  /** The start is words of the reasoning rather than a mark. */
  readonly isSpoken?: boolean;
}

export interface AnswerFormat {
  /** Around reasoning; undefined if the model shows none. */
  readonly reasoning?: ReasoningMarks | undefined;
  /** Around plain text, in models that mark it ("<|START_RESPONSE|>"). */
  readonly content?: Wrapper | undefined;
  /** undefined: the template knows no tools. */
  readonly calls?: CallFormat | undefined;
  /** Texts that end a turn, in case that the tokenizer has no special token for them. */
  readonly turnEnds: readonly string[];
  /** Answers of several messages, each with a header of its own (GPT-OSS and others). Then only `turnEnds` counts besides. */
  readonly frames?: FrameStyle | undefined;
}

export type FrameStyle = "harmony" | "to-header" | "functionary";

export interface CallFormat {
  /** Around all calls; empty texts if there is no such wrapper. */
  readonly section: Wrapper;
  /** Around each call. */
  readonly call: Wrapper;
  /** Between two calls. */
  readonly separator: string;
  /** The text that the template puts between plain text and the first call. */
  readonly gap: string;
  readonly form: CallForm;
  /** A call may come while the model is still reasoning, and ends it. */
  readonly endsReasoning: boolean;
}

/** `{"name": "f", "arguments": {...}}`: keys of the object, and the object that holds them if it is an inner one. */
export interface JsonForm {
  readonly kind: "json";
  /** undefined: the name is the key of the arguments, `{"f": {...}}`. */
  readonly nameKey: string | undefined;
  readonly argumentsKey: string | undefined;
  readonly idKey: string | undefined;
  /** `{"function": {"name": ...}}` */
  readonly innerKey: string | undefined;
  /** Calls are elements of one array. */
  readonly isList: boolean;
}

/** The name between markers, then the arguments as JSON: `[TOOL_CALLS]f[ARGS]{...}`. */
export interface NamedForm {
  readonly kind: "named";
  readonly afterName: Counted;
  /** `[CALL_ID]123` between name and arguments; the text before it. */
  readonly idAfterName: string | undefined;
  /** The call's id and the text after it stand before the name. */
  readonly idBeforeName: string | undefined;
  /** Kimi: the id is the name with its surroundings, `functions.f:0`. */
  readonly idPrefix: string | undefined;
}

/** Name and each argument between tags: `<function=f><parameter=k>v</parameter></function>`. */
export interface TaggedForm {
  readonly kind: "tagged";
  readonly afterName: Counted;
  readonly beforeKey: string;
  /** Between key and value; one of them if there is no telling strings from other values. */
  readonly afterKey: { readonly string: string; readonly other: string };
  readonly afterValue: string;
  /** Values may be written as `<![CDATA[...]]>`. */
  readonly hasCdata: boolean;
}

/** `[f(a=1, b="x")]` */
export interface PythonForm {
  readonly kind: "python";
}

/** Gemma 4: `call:f{key:<|"|>text<|"|>,n:1}`. */
export interface BareKeysForm {
  readonly kind: "bare-keys";
  readonly quote: string;
}

/** MiniMax M3: `<invoke name="f"><key>value</key></invoke>`, values nested in the same way, every tag after a mark. */
export interface NestedForm {
  readonly kind: "nested";
  readonly mark: string;
  readonly afterName: Counted;
}

export type CallForm = JsonForm | NamedForm | TaggedForm | PythonForm | BareKeysForm | NestedForm;

/** A text with a number in it that counts calls: `" index="1"<|sep|>`. */
export interface Counted {
  readonly first: string;
  /** undefined: there is no number. */
  readonly last: string | undefined;
}

/** The properties of a tool that a caller may use. */
export interface AnswerTool {
  readonly name: string;
  readonly parameters?: unknown;
}
