// Questions of `lantern launch` in a terminal. Where there is no terminal, --yes is the answer to all of them.

import { UsageError } from "../../../src/index.ts";
import type { Terminal } from "../../../src/platform/node-cli.ts";

/** Whether somebody can be asked. */
export function canAsk({ inIsTerminal, errIsTerminal }: Terminal): boolean {
  return inIsTerminal && errIsTerminal;
}

/** The answer; "" for Enter alone, the end of the input or Ctrl-C means no. */
export async function ask(question: string, terminal: Terminal): Promise<string | undefined> {
  const lines = terminal.lines();
  try {
    terminal.err(question);
    const answer = await lines.next("");
    return typeof answer === "string" ? answer.trim() : undefined;
  } finally {
    lines.close(); // the client reads what is typed from now on
  }
}

/** Throws unless the answer is yes. */
export async function confirm(
  question: string,
  { yes, refused }: { yes: boolean; refused: string },
  terminal: Terminal,
): Promise<void> {
  if (yes) return;
  if (!canAsk(terminal)) {
    throw new UsageError(
      `launch: ${refused}: nobody can be asked here. Read "--dry-run", then repeat it with --yes`,
    );
  }
  const answer = await ask(`${question} [y/N] `, terminal);
  if (!/^y(es)?$/i.test(answer ?? "")) throw new UsageError(`launch: ${refused}`);
}
