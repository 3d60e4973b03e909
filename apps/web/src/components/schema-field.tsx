// A text box for a JSON Schema, checked while it is typed. The error stands below it and names the keyword and its
// path; a schema that cannot be enforced is never passed on.

import type { JSX } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import { checkSchema } from "../state/schema-check.ts";
import type { SchemaCheck } from "../state/schema-reader.ts";

const restMs = 200;
const nothing: SchemaCheck = { problem: null, notes: [] };

interface Props {
  label: string;
  hint: string;
  placeholder?: string;
  text: string;
  onInput(text: string): void;
  /** The last check: a problem, or null. Called for a text that is not empty. */
  onChecked(problem: string | null): void;
}

export function SchemaField(props: Props): JSX.Element {
  const { label, hint, placeholder, text, onInput, onChecked } = props;
  const [{ problem, notes }, setFound] = useState<SchemaCheck>(nothing);
  const id = useId();
  useEffect(() => {
    let isCurrent = true;
    if (text.trim() === "") return setFound(nothing);
    const timer = setTimeout(async () => {
      const found = await checkSchema(text);
      if (!isCurrent) return;
      setFound(found);
      onChecked(found.problem);
    }, restMs);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [text]);
  return (
    <div class="field">
      <label class="field-label" for={id}>
        {label}
      </label>
      <textarea
        id={id}
        class="schema"
        rows={6}
        spellcheck={false}
        autocapitalize="off"
        placeholder={placeholder}
        value={text}
        aria-invalid={problem !== null}
        aria-describedby={`${id}-hint ${id}-problem`}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <span class="ending" id={`${id}-problem`} role="status">
        {problem}
      </span>
      {notes.length > 0 && <span class="hint">Not enforced: {notes.join("; ")}</span>}
      <span class="hint" id={`${id}-hint`}>
        {hint}
      </span>
    </div>
  );
}
