// A JSON Schema for the answers of a chat. A schema counts as soon as its check succeeds; a wrong one changes nothing.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { SessionSettings } from "../api-types.ts";
import { SchemaField } from "./schema-field.tsx";

type Schema = SessionSettings["schema"];

interface Props {
  schema: Schema;
  /** The chat has tools, which have a grammar of their own. */
  hasTools: boolean;
  onChange(schema: Schema): void;
}

/** Strings have lengths: a small model may never end one by itself. */
const examples: readonly { name: string; schema: Record<string, unknown> }[] = [
  {
    name: "Facts",
    schema: {
      type: "object",
      properties: {
        name: { type: "string", maxLength: 80 },
        year: { type: "integer" },
        tags: { type: "array", items: { type: "string", maxLength: 40 }, maxItems: 5 },
      },
      required: ["name", "year", "tags"],
      additionalProperties: false,
    },
  },
  {
    name: "Yes or no",
    schema: {
      type: "object",
      properties: {
        why: { type: "string", maxLength: 300 },
        answer: { enum: ["yes", "no", "unclear"] },
      },
      required: ["why", "answer"],
      additionalProperties: false,
    },
  },
  {
    name: "A list",
    schema: {
      type: "array",
      items: { type: "string", minLength: 1, maxLength: 200 },
      minItems: 1,
      maxItems: 10,
    },
  },
];

const textOf = (schema: Schema): string =>
  schema === undefined ? "" : JSON.stringify(schema, null, 2);

export function SchemaPanel({ schema, hasTools, onChange }: Props): JSX.Element {
  const [text, setText] = useState(() => textOf(schema));
  const isKept = schema !== undefined && isSame(text, schema);
  return (
    <section class="stack">
      <p>
        Every answer of this chat is JSON that the schema allows: the model cannot write anything
        else.
      </p>
      {hasTools && (
        <p class="ending">
          This chat has tools, and tools do not go together with a schema. Remove the tools or the
          schema.
        </p>
      )}
      <div class="row wrap">
        {examples.map(({ name, schema: example }) => (
          <button key={name} type="button" onClick={() => setText(textOf(example))}>
            Example: {name}
          </button>
        ))}
        {(schema !== undefined || text !== "") && (
          <button
            type="button"
            onClick={() => {
              setText("");
              onChange(undefined);
            }}
          >
            Remove
          </button>
        )}
      </div>
      <SchemaField
        label="JSON Schema"
        hint="Checked while you type. Properties come in the order of the schema. An answer ends after 2048 tokens, unless the settings say otherwise."
        placeholder={'{ "type": "object", "properties": { "name": { "type": "string" } } }'}
        text={text}
        onInput={(now) => {
          setText(now);
          if (now.trim() === "") onChange(undefined);
        }}
        onChecked={(problem) => {
          if (problem === null && !isKept) onChange(JSON.parse(text) as Schema);
        }}
      />
      <p class="hint" role="status">
        {isKept
          ? "Answers follow this schema."
          : schema === undefined
            ? "Answers are free."
            : "Answers follow the last schema that was complete."}
      </p>
    </section>
  );
}

function isSame(text: string, schema: Schema): boolean {
  try {
    return JSON.stringify(JSON.parse(text)) === JSON.stringify(schema);
  } catch {
    return false;
  }
}
