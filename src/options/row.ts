// What a row of an option table is. A row is data: each surface (the API, flags, requests, the page) reads the columns that it needs.

import { OptionError } from "../base/errors.ts";
import { isInRange, type NumberRange, rangeText } from "./range.ts";

interface AnyRow {
  /** A few words, as the page calls it. */
  readonly label: string;
  /** As commander has it: "-s, --seed <n>"; none: no flag. */
  readonly flag?: string;
  /** A second flag that means the same. */
  readonly otherFlag?: string;
  /** What it does: the flag's sentence. */
  readonly help: string;
  /** What special values mean: "0: off". Said in the help, and where a value is refused. */
  readonly note?: string;
  /** Its field in requests, under llama.cpp's name, which OpenAI's and Ollama's requests know as well; none: no field. */
  readonly field?: string;
  /** Ollama's name of it in `options` and Modelfiles, where that is another. */
  readonly ollama?: string;
  /** The default in words, where it depends on something. */
  readonly usual?: string;
  /** How sentences call it on the command line, if not by its flag's long name. */
  readonly shortFlag?: string;
  /** How a server's sentences call it, if not by its field or label. */
  readonly said?: string;
}

export interface NumberRow extends AnyRow {
  readonly type: "number";
  readonly range: NumberRange;
  /** Texts that it may be instead. */
  readonly words?: readonly string[];
  /** Other values that its flag knows, and what they mean. */
  readonly flagWords?: Readonly<Record<string, string>>;
  /** Its flag takes "4G", too. */
  readonly unit?: "bytes";
  /** None: its default is no number, or depends on something. */
  readonly default?: number;
  /** In flags, files and requests, this value is as good as none. */
  readonly none?: number;
  /** Of requests and stored settings, where they may ask for less: a server computes for others as well. */
  readonly requests?: NumberRange;
  /** Anthropic's requests have it under the same name, with this range. */
  readonly anthropic?: NumberRange;
  /** The page's slider: a sentence for everybody, and the values that people try. */
  readonly slider?: {
    readonly why: string;
    readonly min: number;
    readonly max: number;
    readonly step: number;
  };
}

export interface TextsRow extends AnyRow {
  readonly type: "texts";
  /** The most texts, and the most characters of one. */
  readonly most: number;
  readonly longest: number;
  readonly default?: readonly string[];
  /** A field may be one text instead of a list. */
  readonly single?: true;
  /** As a flag's value: no texts. */
  readonly none?: string;
  /** In a flag, \n and \t are a line break and a tab, which are hard to type in a shell. */
  readonly escapes?: true;
}

export interface BooleanRow extends AnyRow {
  readonly type: "boolean";
  readonly default?: boolean;
  /** The sentence of --no-..., if there is such a flag. */
  readonly noHelp?: string;
}

export interface TextRow extends AnyRow {
  readonly type: "text";
  readonly default?: string;
}

export interface ChoiceRow extends AnyRow {
  readonly type: "choice";
  readonly values: readonly (string | number | boolean)[];
  readonly default?: string | number | boolean;
  /** What its flag calls some of them. */
  readonly flagWords?: Readonly<Record<string, string | number | boolean>>;
}

/** A value that only its own code reads: a location, a list of objects, a type of tensors. */
export interface OtherRow extends AnyRow {
  readonly type: "other";
  readonly default?: undefined;
}

export type OptionRow = NumberRow | TextsRow | BooleanRow | TextRow | ChoiceRow | OtherRow;

type WordOf<Row> = Row extends { readonly words: readonly (infer Word)[] } ? Word : never;
type ChoiceOf<Row> = Row extends { readonly values: readonly (infer Value)[] } ? Value : never;
interface ValueOf<Row> {
  number: number | WordOf<Row>;
  texts: readonly string[];
  boolean: boolean;
  text: string;
  choice: ChoiceOf<Row>;
  other: unknown;
}
type Rows = Readonly<Record<string, { readonly type: OptionRow["type"] }>>;

/** The options of a table, in the API, but for those of other types. */
export type OptionsOf<Table extends Rows> = {
  -readonly [Name in keyof Table as Table[Name]["type"] extends "other" ? never : Name]?:
    | ValueOf<Table[Name]>[Table[Name]["type"]]
    | undefined;
};

type FieldOf<Row> = Row extends { readonly field: infer Field extends string } ? Field : never;
interface FieldValueOf {
  number: number;
  texts: string | string[];
  boolean: boolean;
  text: string;
  choice: string;
  other: unknown;
}

/** The same in requests. */
export type FieldsOf<Table extends Rows> = {
  [Name in keyof Table as FieldOf<Table[Name]>]?: FieldValueOf[Table[Name]["type"]] | undefined;
};

/** The sentence of a flag's help. */
export function helpOf(row: OptionRow): string {
  const { help, note, usual } = row;
  const value = usual ?? (row.type === "number" ? (row.default ?? row.none) : undefined);
  const shown = value === undefined ? "" : ` (default: ${value})`;
  return `${help}${note === undefined ? "" : `; ${note}`}${shown}`;
}

/** The range of a flag, or of a file's key. */
export function flagRange({ range, none }: NumberRow): NumberRange {
  return none === undefined ? range : { ...range, also: none };
}

/** The range of a field. */
export function fieldRange(row: NumberRow): NumberRange {
  const { requests = row.range, none } = row;
  return none === undefined ? requests : { ...requests, also: none };
}

/** What values a row takes, for a sentence that refuses another. */
export function expectedOf(row: OptionRow): string {
  const note = row.note === undefined ? "" : ` (${row.note})`;
  switch (row.type) {
    case "boolean":
      return "true or false";
    case "text":
      return "text";
    case "other":
      return row.help;
    case "choice":
      return `one of ${row.values.map((value) => JSON.stringify(value)).join(", ")}`;
    case "texts":
      return `a list of at most ${row.most} texts, each of 1 to ${row.longest} characters`;
    case "number": {
      const words = (row.words ?? []).map((word) => `"${word}"`);
      const last = words.pop();
      const all = [rangeText(row.range), ...words].join(", ");
      return `${last === undefined ? all : `${all} or ${last}`}${note}`;
    }
  }
}

/** Whether a row takes a value in the API; a row of another type says nothing. */
export function takes(row: OptionRow, value: unknown): boolean {
  switch (row.type) {
    case "boolean":
      return typeof value === "boolean";
    case "text":
      return typeof value === "string";
    case "other":
      return true;
    case "choice":
      return (row.values as readonly unknown[]).includes(value);
    case "texts":
      return (
        Array.isArray(value) &&
        value.length <= row.most &&
        value.every((one) => typeof one === "string" && one !== "" && one.length <= row.longest)
      );
    case "number":
      return (
        isInRange(value, row.range) ||
        (row.words as readonly unknown[] | undefined)?.includes(value) === true
      );
  }
}

/** Throws for the first option whose value its row does not take. */
export function checkRows(rows: Readonly<Record<string, OptionRow>>, options: object): void {
  for (const [name, value] of Object.entries(options)) {
    const row = Object.hasOwn(rows, name) ? rows[name] : undefined;
    if (row && value !== undefined && !takes(row, value)) {
      throw new OptionError(name, value, expectedOf(row));
    }
  }
}
