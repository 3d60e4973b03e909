// The common parts of the stress tests (stress-*.ts): their command line, a folder that is removed at the end, parts that can be chosen, the
// table of their results, and requests. The processes are started by test/cluster/processes.ts.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Random } from "../test/support/random.ts";

export interface Stress {
  /** Rounds, kills or requests. */
  readonly count: number;
  readonly seed: number;
  readonly random: Random;
  /** Names of parts; none: all. */
  readonly wanted: readonly string[];
  /** Removed when the process ends. */
  readonly folder: string;
}

/** Reads [COUNT] [SEED] [PART...]; the process ends with code 2 and the usage if they are wrong. */
export function beginStress(
  usage: string,
  usual: { readonly count: number; readonly seed: number; readonly least?: number },
  args: readonly string[] = process.argv.slice(2),
): Stress {
  const [count, seed] = [Number(args[0] ?? usual.count), Number(args[1] ?? usual.seed)];
  if (!Number.isInteger(count) || count < (usual.least ?? 1) || !Number.isInteger(seed)) {
    console.error(`usage: npm run ${usage}`);
    process.exit(2);
  }
  const folder = mkdtempSync(join(tmpdir(), "lantern-stress-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  return { count, seed, random: new Random(seed), wanted: args.slice(2), folder };
}

/** A row for each action, and the findings. */
export class Findings {
  readonly #rows: string[] = [];
  #problems = 0;

  add(cells: readonly string[], wrong: readonly string[]): void {
    const last = [cells.at(-1), `${wrong.length} wrong`].filter((cell) => cell !== "").join(", ");
    this.#rows.push(`| ${[...cells.slice(0, -1), last].join(" | ")} |`);
    console.log(this.#rows.at(-1));
    for (const one of wrong.slice(0, 10)) console.error(`  ${one}`);
    this.#problems += wrong.length;
  }

  /** The parts, one after the other; an error is a finding. Then all rows as a table, and the exit code. */
  async run(
    { wanted, seed }: Stress,
    header: readonly string[],
    parts: Readonly<Record<string, () => Promise<void>>>,
  ): Promise<void> {
    for (const [name, part] of Object.entries(parts)) {
      if (wanted.length > 0 && !wanted.includes(name)) continue;
      await part().catch((error: unknown) => {
        const cells = [name, ...header.slice(2).map(() => ""), "it ended with an error"];
        this.add(cells, [String(error)]);
      });
    }
    const rule = header.map(() => "---").join("|");
    console.log(`\n| ${header.join(" | ")} |\n|${rule}|\n${this.#rows.join("\n")}\nseed ${seed}`);
    process.exitCode = this.#problems > 0 ? 1 : 0;
  }
}

export const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, ms));

export function postOf(body: object): RequestInit {
  const headers = { "content-type": "application/json" };
  return { method: "POST", headers, body: JSON.stringify(body) };
}

/** A file of requests, for POST /v1/files. */
export function uploadOf(bytes: string | Uint8Array<ArrayBuffer>): RequestInit {
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new Blob([bytes]), "in.jsonl");
  return { method: "POST", body: form };
}

/** The body of POST /v1/batches. */
export function batchOfFile(id: string, endpoint: string): RequestInit {
  return postOf({ input_file_id: id, endpoint, completion_window: "24h" });
}
