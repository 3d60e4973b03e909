// A schema's objections to a value as texts: issues of zod, and of any library that follows Standard Schema.

export interface Issue {
  readonly message: string;
  /** Keys, or objects with one. */
  readonly path?: readonly unknown[] | undefined;
}

/** More of them do not help. */
const mostIssues = 5;

/** "tools.0.inputSchema.type: expected "object"". */
export function issueText({ message, path = [] }: Issue): string {
  const text = message.replace(/^Invalid input: /, "").replace(/^Invalid input$/, "wrong type");
  const keys = path.map((part) =>
    String(Object(part) === part ? (part as { key: PropertyKey }).key : part),
  );
  return keys.length === 0 ? text : `${keys.join(".")}: ${text}`;
}

/** The text of all issues, in one line. */
export function issuesText(issues: readonly Issue[]): string {
  const shown = issues.slice(0, mostIssues).map(issueText);
  const left = issues.length - shown.length;
  return shown.join("; ") + (left > 0 ? `; and ${left} more` : "");
}

/** The issues of an error that has some, such as a ZodError, which has all of them as JSON for its own message. */
export function issuesOf(error: object): readonly Issue[] | undefined {
  const { issues } = error as { issues?: unknown };
  const isIssue = (one: unknown): one is Issue =>
    typeof (one as Issue | null)?.message === "string" && Array.isArray((one as Issue).path ?? []);
  return Array.isArray(issues) && issues.length > 0 && issues.every(isIssue) ? issues : undefined;
}
