// The tools of a chat: those that the person adds by a name and a JSON Schema, and whose calls the person answers; and
// those of servers of tools (MCP), which run after the person has confirmed a call.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ServerTool, SessionTool } from "../api-types.ts";
import { attempt } from "../state/notices.ts";
import { useStore } from "../state/store.ts";
import { loadToolServers, toolServers } from "../state/tool-servers.ts";
import { Icon } from "./icon.tsx";
import { SchemaField } from "./schema-field.tsx";

interface Props {
  tools: readonly SessionTool[];
  onChange(tools: SessionTool[]): void;
}

export function ToolsPanel({ tools, onChange }: Props): JSX.Element {
  return (
    <>
      <OwnTools tools={tools} onChange={onChange} />
      <ServerTools tools={tools} onChange={onChange} />
    </>
  );
}

function OwnTools({ tools: all, onChange }: Props): JSX.Element {
  const tools = all.filter(({ server }) => server === undefined);
  const [draft, setDraft] = useState<Draft | null>(null);
  const save = (tool: SessionTool, before: string | null): void => {
    onChange([...all.filter(({ name }) => name !== before), tool]);
    setDraft(null);
  };
  return (
    <section class="stack tools">
      <p>
        A tool is something that the model may ask for while it answers. A call appears in the chat
        as a card, and you type what the tool would return.
      </p>
      {tools.length === 0 && draft === null && <p class="hint">You have added no tool yet.</p>}
      {tools.length > 0 && (
        <ul class="tool-list">
          {tools.map((tool) => (
            <li key={tool.name}>
              <div class="grow">
                <b>{tool.name}</b>
                {tool.description && <p class="hint">{tool.description}</p>}
              </div>
              <button
                type="button"
                class="quiet"
                aria-label={`Change ${tool.name}`}
                title="Change"
                onClick={() => setDraft(draftOf(tool))}
              >
                <Icon name="edit" />
              </button>
              <button
                type="button"
                class="quiet"
                aria-label={`Remove ${tool.name}`}
                title="Remove"
                onClick={() => onChange(all.filter(({ name }) => name !== tool.name))}
              >
                <Icon name="trash" />
              </button>
            </li>
          ))}
        </ul>
      )}
      {draft === null ? (
        <div class="row wrap">
          <button type="button" onClick={() => setDraft(emptyDraft)}>
            <Icon name="plus" /> Add a tool
          </button>
          {examples
            .filter(({ name }) => !all.some((tool) => tool.name === name))
            .map((example) => (
              <button
                key={example.name}
                type="button"
                onClick={() => setDraft({ ...draftOf(example), before: null })}
              >
                Example: {example.name}
              </button>
            ))}
        </div>
      ) : (
        <ToolForm
          key={draft.before ?? draft.name}
          start={draft}
          taken={all.map(({ name }) => name).filter((name) => name !== draft.before)}
          onSave={save}
          onCancel={() => setDraft(null)}
        />
      )}
    </section>
  );
}

/** The tools of the servers, each with a switch. */
function ServerTools({ tools: all, onChange }: Props): JSX.Element {
  const known = useStore(toolServers);
  // A server without this route has none.
  useEffect(() => void attempt(loadToolServers), []);
  if (!known?.enabled) {
    return (
      <section class="stack">
        <h3>Tools of other programs</h3>
        <p class="hint">
          Start the server with <code>--mcp-config FILE</code> to use MCP servers here.
        </p>
      </section>
    );
  }
  const turn = (tool: ServerTool, isOn: boolean): void => {
    const others = all.filter(({ name }) => name !== tool.name);
    onChange(isOn ? [...others, tool] : others);
  };
  return (
    <section class="stack tools">
      <h3>Tools of other programs</h3>
      <p class="hint">You confirm every call before it runs.</p>
      {known.servers.map(({ name, status, problem }) => (
        <fieldset key={name} class="tool-server">
          <legend>{name}</legend>
          {status === "failed" && <p class="ending">{problem ?? "It could not be started."}</p>}
          {known.tools
            .filter(({ server }) => server === name)
            .map((tool) => {
              const own = all.find((one) => one.name === tool.name);
              const isTaken = own !== undefined && own.server !== tool.server;
              return (
                <label key={tool.name} class="check">
                  <input
                    type="checkbox"
                    checked={own !== undefined && !isTaken}
                    disabled={isTaken}
                    onChange={(event) => turn(tool, event.currentTarget.checked)}
                  />
                  <span>
                    <b>{tool.name}</b>
                    <span class="hint">
                      {" "}
                      {isTaken ? "Another tool has this name." : tool.description}
                    </span>
                  </span>
                </label>
              );
            })}
        </fieldset>
      ))}
    </section>
  );
}

interface Draft {
  /** The tool that is changed; null: a new one. */
  before: string | null;
  name: string;
  description: string;
  parameters: string;
}

const emptyDraft: Draft = { before: null, name: "", description: "", parameters: "" };

function draftOf({ name, description = "", parameters }: SessionTool): Draft {
  const text = parameters === undefined ? "" : JSON.stringify(parameters, null, 2);
  return { before: name, name, description, parameters: text };
}

const examples: readonly SessionTool[] = [
  {
    name: "get_weather",
    description: "The weather in a city today.",
    parameters: {
      type: "object",
      properties: { city: { type: "string" }, unit: { enum: ["celsius", "fahrenheit"] } },
      required: ["city"],
    },
  },
  {
    name: "look_up",
    description: "Looks a word up in my notes.",
    parameters: {
      type: "object",
      properties: { words: { type: "string" }, limit: { type: "integer", minimum: 1 } },
      required: ["words"],
    },
  },
];

const namePattern = /^[\w.-]{1,64}$/;

function nameProblem(name: string, taken: readonly string[]): string | null {
  if (name === "") return null;
  if (!namePattern.test(name)) return "Use 1 to 64 letters, digits, dots, - or _.";
  return taken.includes(name) ? "Another tool has this name." : null;
}

interface FormProps {
  start: Draft;
  taken: readonly string[];
  onSave(tool: SessionTool, before: string | null): void;
  onCancel(): void;
}

function ToolForm({ start, taken, onSave, onCancel }: FormProps): JSX.Element {
  const [{ name, description, parameters }, setDraft] = useState(start);
  const set = (change: Partial<Draft>): void => setDraft((now) => ({ ...now, ...change }));
  // The last text whose check succeeded; a newer one is not checked yet.
  const [good, setGood] = useState<string | null>(null);
  const problem = nameProblem(name, taken);
  const isGood = parameters.trim() === "" || good === parameters;
  const canSave = name !== "" && problem === null && isGood;
  const save = (): void => {
    if (!canSave) return;
    const about = description.trim();
    const schema = parameters.trim() === "" ? undefined : (JSON.parse(parameters) as unknown);
    onSave(
      {
        name,
        ...(about !== "" && { description: about }),
        ...(isObject(schema) && { parameters: schema }),
      },
      start.before,
    );
  };
  return (
    <form
      class="card stack"
      aria-label={start.before === null ? "A new tool" : `Change ${start.before}`}
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <label class="field">
        <span class="field-label">Name</span>
        <input
          value={name}
          autofocus
          spellcheck={false}
          autocapitalize="off"
          placeholder="get_weather"
          aria-invalid={problem !== null}
          onInput={(event) => set({ name: event.currentTarget.value })}
        />
        {problem !== null && <span class="ending">{problem}</span>}
      </label>
      <label class="field">
        <span class="field-label">What it does</span>
        <input
          value={description}
          dir="auto"
          placeholder="The weather in a city today."
          maxLength={10_000}
          onInput={(event) => set({ description: event.currentTarget.value })}
        />
      </label>
      <SchemaField
        label="Arguments"
        hint="A JSON Schema of an object. Empty: the tool has no arguments."
        placeholder={'{ "type": "object", "properties": { "city": { "type": "string" } } }'}
        text={parameters}
        onInput={(text) => set({ parameters: text })}
        onChecked={(found) => setGood(found === null ? parameters : null)}
      />
      <div class="row end">
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" class="primary" disabled={!canSave}>
          {start.before === null ? "Add" : "Save"}
        </button>
      </div>
    </form>
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
