// What coding agents send: a long system prompt and dozens of tools, of the size and with the shapes of real ones, in words of our own.
// The same pieces for every protocol.

const common =
  "the a of to and in is you file tool command path project read write edit run test search list line text change user answer agent plan step before after when not only with without for that this should must may use give return work code name value result error message first last next more than each other one all no if or as it be";
const vocabulary: readonly string[] = common.split(" ");
const keys =
  "type object properties required description string number integer boolean array items enum function parameters name additionalProperties false true minimum default anyOf null const".split(
    " ",
  );

/** The words of which a model for these texts should have tokens. */
export const agentWords: readonly string[] = [...vocabulary, ...keys];

/** Sentences of this many words; another seed gives other sentences. */
export function sentences(seed: number, words: number): string {
  let state = seed * 2654435761 + 1;
  const all: string[] = [];
  for (let at = 0; at < words; at++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const word = vocabulary[state % vocabulary.length]!;
    all.push(at % 12 === 11 ? `${word}.` : word);
  }
  return all.join(" ");
}

export interface AgentTool {
  readonly name: string;
  readonly description: string;
  readonly parameters: Record<string, unknown>;
}

/** Schemas as agents have them: nested objects, lists of them, choices, alternatives, limits. */
const schemas: readonly ((seed: number) => Record<string, unknown>)[] = [
  (seed) => ({
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    properties: {
      path: { type: "string", description: sentences(seed, 20) },
      offset: { type: "integer", minimum: 0, description: sentences(seed + 1, 20) },
      limit: { type: "integer", exclusiveMinimum: 0, description: sentences(seed + 2, 20) },
    },
    required: ["path"],
    additionalProperties: false,
  }),
  (seed) => ({
    type: "object",
    properties: {
      command: { type: "string", description: sentences(seed, 30) },
      timeout: { type: "number", description: sentences(seed + 1, 10) },
      mode: { type: "string", enum: ["read", "write", "list"], default: "read" },
      isLong: { type: "boolean", description: sentences(seed + 2, 12) },
    },
    required: ["command"],
  }),
  (seed) => ({
    type: "object",
    properties: {
      edits: {
        type: "array",
        minItems: 1,
        description: sentences(seed, 20),
        items: {
          type: "object",
          properties: {
            path: { type: "string" },
            change: {
              type: "object",
              properties: { old: { type: "string" }, new: { type: "string" } },
              required: ["old", "new"],
            },
            all: { type: ["boolean", "null"] },
          },
          required: ["path", "change"],
        },
      },
      note: { anyOf: [{ type: "string" }, { type: "null" }], description: sentences(seed + 3, 15) },
    },
    required: ["edits"],
  }),
];

/** The first four are called by the script; the others are there, as in real lists. */
export const agentTools: readonly AgentTool[] = Array.from({ length: 36 }, (_, at) => ({
  name:
    ["read_file", "run_command", "edit_files", "search"][at] ?? `mcp__server${at % 4}__tool${at}`,
  description: sentences(at, at % 5 === 0 ? 400 : 120),
  parameters: schemas[at % schemas.length]!(at * 7),
}));

export const agentSystem: string = [
  "You are an agent that works in a project of the user.",
  ...Array.from({ length: 24 }, (_, at) => `# Part ${at}\n\n${sentences(1000 + at, 220)}`),
].join("\n\n");

/** Facts that agents put into the first message. */
export const agentReminder: string = `<system-reminder>\nToday's date is 2026-01-02.\n${sentences(77, 150)}\n</system-reminder>`;

export interface AgentCall {
  readonly name: string;
  readonly input: Record<string, unknown>;
  /** What the tool gives; an error is one that the agent reports to the model. */
  readonly result: string;
  readonly isError?: boolean;
}

export interface AgentTurn {
  readonly thinking?: string;
  readonly text: string;
  readonly calls: readonly AgentCall[];
}

const read = (path: string): AgentCall => ({
  name: "read_file",
  input: { path, offset: 0 },
  result: sentences(path.length, 60),
});
const run = (command: string, isError = false): AgentCall => ({
  name: "run_command",
  input: { command, mode: "read", isLong: false },
  result: isError ? "exit code 1: no such file" : sentences(command.length, 40),
  isError,
});
const edit = (path: string): AgentCall => ({
  name: "edit_files",
  input: {
    edits: [
      { path, change: { old: 'a "quoted" line\n', new: "a \\ line\n" }, all: null },
      { path: `${path}.x`, change: { old: "", new: "</tool_call>" } },
    ],
  },
  result: "done",
});

/** Ten answers: reasoning, calls side by side, nested arguments, tools that fail, the end. */
export const agentTurns: readonly AgentTurn[] = [
  { thinking: "First I read.", text: "I read the file.", calls: [read("a.ts")] },
  { text: "", calls: [read("b.ts"), run("list")] },
  { text: "", calls: [run("cat missing", true)] },
  { thinking: "It is missing.", text: "I write it.", calls: [edit("missing")] },
  { text: "", calls: [run("test"), run("test more", true), read("c.ts")] },
  { text: "One more change.", calls: [edit("c.ts")] },
  { text: "", calls: [run("test")] },
  { text: "", calls: [{ name: "search", input: { path: "." }, result: "" }] },
  { text: "", calls: [read("d.ts")] },
  { text: "All is done.", calls: [] },
];

/** A turn as models in the manner of Qwen write it. */
export function wordsOf({ thinking, text, calls }: AgentTurn): string {
  const written = calls.map(
    ({ name, input }) => `<tool_call>\n${JSON.stringify({ name, arguments: input })}\n</tool_call>`,
  );
  const thought = thinking === undefined ? [] : [`<think>\n${thinking}\n</think>\n`];
  return [...thought, ...(text === "" ? [] : [text]), ...written].join("\n");
}
