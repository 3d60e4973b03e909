// Kills a real server (`lantern serve`) at random moments while it computes and stores state, starts it again on the same folder, and lets
// it go on. Every answer must be the text of a server that is never killed and keeps no copies.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Random } from "../support/random.ts";

const launcher = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));

export interface KillReport {
  kills: number;
  /** Answers that came before a kill, and all of which were compared. */
  answers: number;
  /** Prompt tokens of these answers, by where their state came from. */
  tokens: { kv: number; ram: number; disk: number; computed: number };
  /** Answers that were not the text of the other server. */
  wrong: string[];
  /** What killed servers said of their files. */
  said: string[];
}

interface Serving {
  readonly url: string;
  readonly child: ChildProcess;
  /** What it wrote to stderr. */
  readonly said: string[];
}

interface Answer {
  content: string;
  tokens_evaluated: number;
  timings: { cache_kv_n: number; cache_ram_n: number; cache_disk_n: number };
}

/** Those that run: none outlives this process. */
const running = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

async function serve(more: readonly string[]): Promise<Serving> {
  const args = ["serve", "-m", "stories15m", "--port", "0", "--no-token", "--no-sessions"];
  const all = [...args, "--no-web", "--json", "-t", "1", "--parallel", "2", ...more];
  const env = { ...process.env, LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1" };
  const child = spawn(process.execPath, [launcher, ...all], {
    stdio: ["ignore", "pipe", "pipe"],
    env,
  });
  running.add(child);
  child.on("close", () => running.delete(child));
  const said: string[] = [];
  child.stderr!.setEncoding("utf8").on("data", (text: string) => void said.push(text));
  let out = "";
  for await (const piece of child.stdout!) {
    out += String(piece);
    if (out.includes("\n")) return { url: (JSON.parse(out) as { url: string }).url, child, said };
  }
  throw new Error(`lantern serve ended: ${said.join("")}`);
}

async function kill({ child }: Serving): Promise<void> {
  const closed = once(child, "close");
  child.kill("SIGKILL");
  await closed;
}

/** undefined: the server was killed meanwhile. */
async function complete({ url }: Serving, prompt: string): Promise<Answer | undefined> {
  const body = { prompt, n_predict: 20, temperature: 0, ignore_eos: true };
  try {
    const response = await fetch(`${url}/completion`, {
      method: "POST",
      body: JSON.stringify(body),
    });
    return (await response.json()) as Answer;
  } catch {
    return undefined;
  }
}

const words = "cat dog ball tree girl boy house river bird moon cake hat".split(" ");

/** The beginning of a story: enough tokens that it is stored. */
function opening(number: number): string {
  const random = new Random(1000 + number);
  const some = Array.from({ length: 7 }, () => {
    const [one, two] = [random.pick(words), random.pick(words)];
    return `There was a ${one} that liked the ${two} very much.`;
  });
  return `Once upon a time, in story number ${number}: ${some.join(" ")}`;
}

/** Turns of a story: each continues the text of the one before. */
const TURNS = 3;

/** `onKill`: called after each kill. */
export async function killServers(
  folder: string,
  options: { kills: number; seed: number; onKill?: (report: KillReport) => void },
): Promise<KillReport> {
  const { kills, seed, onKill } = options;
  const random = new Random(seed);
  const report: KillReport = {
    kills: 0,
    answers: 0,
    tokens: { kv: 0, ram: 0, disk: 0, computed: 0 },
    wrong: [],
    said: [],
  };
  const expected = new Map<string, Promise<string>>();
  const steady = await serve(["--cache-ram", "0", "--cache-disk", "0"]);
  try {
    const rightAnswer = (prompt: string): Promise<string> => {
      const known = expected.get(prompt) ?? complete(steady, prompt).then((one) => one!.content);
      expected.set(prompt, known);
      return known;
    };
    /** Tells a story, turn by turn; false: the server is gone. */
    const tell = async (
      server: Serving,
      story: number,
      isOver = (): boolean => false,
    ): Promise<boolean> => {
      let text = opening(story);
      for (let turn = 0; turn < TURNS && !isOver(); turn++) {
        const prompt = text;
        const answer = await complete(server, prompt);
        if (!answer) return false;
        const right = await rightAnswer(prompt);
        report.answers++;
        const { cache_kv_n: kv, cache_ram_n: ram, cache_disk_n: disk } = answer.timings;
        report.tokens.kv += kv;
        report.tokens.ram += ram;
        report.tokens.disk += disk;
        report.tokens.computed += answer.tokens_evaluated - kv - ram - disk;
        if (answer.content !== right) {
          report.wrong.push(`${JSON.stringify(prompt)}: ${answer.content} (not ${right})`);
        }
        text = `${prompt}${right} Then the ${words[(story + turn) % words.length]} came.`;
      }
      return true;
    };
    const start = (): Promise<Serving> =>
      serve(["--cache-ram", "1", "--cache-disk", "30", "--cache-folder", folder]);
    /** One story after the other: an earlier one, which is stored, or the next. */
    const tellMany = async (server: Serving, isOver: () => boolean): Promise<void> => {
      while (!isOver()) {
        const story = random.below(2) ? random.below(8) : report.kills + 8;
        if (!(await tell(server, story, isOver))) return;
      }
    };
    while (report.kills < kills) {
      const server = await start();
      let isOver = false;
      const clients = [0, 1].map(() => tellMany(server, () => isOver));
      await new Promise((resolve) => setTimeout(resolve, random.below(1500)));
      isOver = true;
      await kill(server);
      await Promise.all(clients);
      report.kills++;
      report.said.push(...server.said.filter((text) => /damaged|could not|not kept/.test(text)));
      onKill?.(report);
    }
    const last = await start();
    for (let story = 7; story < 10; story++) await tell(last, story);
    await kill(last);
  } finally {
    await kill(steady);
  }
  return report;
}
