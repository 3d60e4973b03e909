// A real terminal for tests: tmux without a window, with a server of its own. Keys are pressed in it, and its screen is read.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";

/** Why tests in a terminal cannot run here; undefined: they can. */
export const noTmux: string | undefined =
  spawnSync("tmux", ["-V"]).status === 0
    ? undefined
    : "tmux is not installed (apt-get install tmux)";

export class Tmux {
  readonly #folder = mkdtempSync(join(tmpdir(), "lantern-tmux-"));

  /** A plain shell in it. */
  constructor(columns: number, rows: number, environment: Readonly<Record<string, string>>) {
    const { PATH = "", HOME = "" } = process.env;
    const variables = { PATH, HOME, LC_ALL: "C.UTF-8", PS1: "$ ", ...environment };
    const shell = [
      "env",
      "-i",
      ...Object.entries(variables).map(([name, value]) => `${name}=${value}`),
    ];
    // tmux's own variables are what a program in it sees.
    const inner = `exec ${shell.map(quoted).join(" ")} TERM="$TERM" TMUX="$TMUX" sh -i`;
    const size = ["-x", String(columns), "-y", String(rows)];
    this.run(
      "start-server",
      ";",
      "set",
      "-s",
      "extended-keys",
      "always",
      ";",
      "new-session",
      "-d",
      ...size,
      inner,
    );
  }

  run(...args: string[]): string {
    const { TMUX: _, ...environment } = process.env;
    const place = ["-u", "-f", "/dev/null", "-S", join(this.#folder, "socket")];
    return execFileSync("tmux", [...place, ...args], {
      encoding: "utf8",
      env: { ...environment, LC_ALL: "C.UTF-8" },
    });
  }

  /** Keys by tmux's names: "Enter", "M-Enter", "C-c". */
  press(...keys: string[]): void {
    this.run("send-keys", ...keys);
  }

  type(text: string): void {
    this.run("send-keys", "-l", text);
  }

  /** `marked`: as terminals do that mark what is pasted where the program asks for it. */
  paste(text: string, marked: boolean): void {
    this.run("set-buffer", text);
    this.run("paste-buffer", ...(marked ? ["-p"] : []));
  }

  resize(columns: number, rows: number): void {
    this.run("resize-window", "-x", String(columns), "-y", String(rows));
  }

  /** The screen, without empty rows at its end. */
  get screen(): string {
    return this.run("capture-pane", "-p").trimEnd();
  }

  /** The screen with its colours. */
  get colored(): string {
    return this.run("capture-pane", "-p", "-e");
  }

  get cursor(): { row: number; column: number } {
    const [column, row] = this.run("display", "-p", "#{cursor_x} #{cursor_y}")
      .split(" ")
      .map(Number);
    return { row: row!, column: column! };
  }

  async shows(what: string | RegExp): Promise<void> {
    const shown = expect.poll(() => this.screen, { interval: 50 });
    await (typeof what === "string" ? shown.toContain(what) : shown.toMatch(what));
  }

  close(): void {
    try {
      this.run("kill-server");
    } finally {
      rmSync(this.#folder, { recursive: true, force: true });
    }
  }
}

export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
