// Kills a real server (`lantern serve`) while clients have it write conversations, uploads, batches, saved slots and stored state, and
// starts it again on the same folder. What it has acknowledged must be there, complete; what it has not may be missing, but never be half
// there; and a start says nothing of damage.

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import type { Message, Session } from "../../apps/sessions/session.ts";
import { type Started, startLantern } from "../cluster/processes.ts";
import { Random } from "../support/random.ts";
import { follow } from "./lantern-client.ts";

export interface WritesReport {
  kills: number;
  /** Acknowledged, and found again after every kill since then. */
  acknowledged: {
    messages: number;
    answers: number;
    files: number;
    batches: number;
    slots: number;
  };
  /** What was not there any more, or not as it was. */
  lost: string[];
  /** What servers said of damage. */
  said: string[];
  /** Files that nobody asked for, after the last start. */
  left: string[];
}

interface Written {
  sessions: Map<string, Map<string, string | undefined>>;
  files: Map<string, string>;
  batches: Map<string, number>;
  slots: Set<string>;
}

const digest = (bytes: Uint8Array | string): string =>
  createHash("sha256").update(bytes).digest("hex");

class Gone extends Error {}

async function ask(url: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  let body: ArrayBuffer;
  try {
    response = await fetch(url, init);
    body = await response.arrayBuffer();
  } catch (error) {
    throw new Gone("the server was killed", { cause: error });
  }
  return new Response(body, { status: response.status });
}

const post = (url: string, body: object): Promise<Response> =>
  ask(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

async function ok<T>(answer: Promise<Response>): Promise<T> {
  const response = await answer;
  const text = await response.text();
  if (response.status >= 300) throw new Error(`${response.status}: ${text.slice(0, 300)}`);
  return JSON.parse(text) as T;
}

/** `onKill`: called after each kill. */
export async function killWrites(
  folder: string,
  options: { kills: number; seed: number; onKill?: (report: WritesReport) => void },
): Promise<WritesReport> {
  const { kills, seed, onKill } = options;
  const random = new Random(seed);
  const written: Written = {
    ...{ sessions: new Map(), files: new Map(), batches: new Map(), slots: new Set() },
  };
  const report: WritesReport = {
    kills: 0,
    acknowledged: { messages: 0, answers: 0, files: 0, batches: 0, slots: 0 },
    ...{ lost: [], said: [], left: [] },
  };
  const slotFolder = join(folder, "slots");
  mkdirSync(slotFolder, { recursive: true });
  const stateFolder = join(folder, "state");
  const running = new Set<Started>();
  const onExit = (): void => {
    for (const { child } of running) child.kill("SIGKILL");
  };
  process.on("exit", onExit);
  const start = async (): Promise<Started & { url: string }> => {
    const places = [
      ...["--sessions", join(folder, "sessions.db"), "--batches", join(folder, "batches.db")],
      ...["--slot-save-path", slotFolder, "--cache-folder", stateFolder],
      ...["--cache-ram", "1", "--cache-disk", "30"],
    ];
    const flags = ["--port", "0", "--no-token", "--no-web", "-t", "1", "--parallel", "4"];
    const started = await startLantern(["serve", "-m", "stories15m", ...flags, ...places]);
    running.add(started);
    return { ...started, url: started.ready.url as string };
  };
  /** Kills it, and keeps what it has said of its files. */
  const kill = async (server: Started): Promise<void> => {
    server.child.kill("SIGKILL");
    await server.ended;
    running.delete(server);
    report.said.push(
      ...server.said.filter((line) => /damaged|could not|corrupt|malformed|bug/i.test(line)),
    );
  };
  /** All that was acknowledged is there. */
  const check = async ({ url }: { url: string }): Promise<void> => {
    for (const [id, expected] of written.sessions) {
      const { messages } = await ok<{ messages: Message[] }>(
        ask(`${url}/lantern/v1/sessions/${id}/messages`),
      );
      const found = new Map(messages.map((message) => [message.id, message]));
      for (const [message, text] of expected) {
        const there = found.get(message);
        if (!there) report.lost.push(`message ${message} of session ${id}`);
        else if (text !== undefined && there.content !== text) {
          report.lost.push(
            `message ${message}: ${JSON.stringify(there.content)}, not ${JSON.stringify(text)}`,
          );
        }
      }
    }
    for (const [id, expected] of written.files) {
      const response = await ask(`${url}/v1/files/${id}/content`);
      const found = digest(new Uint8Array(await response.arrayBuffer()));
      if (response.status !== 200 || found !== expected) report.lost.push(`file ${id}`);
    }
    const { data } = await ok<{ data: { id: string; bytes: number }[] }>(
      ask(`${url}/v1/files?limit=1000`),
    );
    for (const { id, bytes } of data) {
      const response = await ask(`${url}/v1/files/${id}/content`);
      const found = (await response.arrayBuffer()).byteLength;
      if (found !== bytes) report.lost.push(`file ${id} has ${found} of ${bytes} bytes`);
    }
    for (const id of written.batches.keys()) {
      const response = await ask(`${url}/v1/batches/${id}`);
      if (response.status !== 200) report.lost.push(`batch ${id}`);
    }
    for (const filename of written.slots) {
      const response = await post(`${url}/slots/0?action=restore`, { filename });
      if (response.status !== 200) report.lost.push(`slot ${filename}: ${await response.text()}`);
    }
  };
  let names = 0;
  const writers = (url: string, acknowledge: () => void): (() => Promise<void>)[] => [
    async () => {
      const settings = { temperature: 0, maxTokens: 4 };
      const session = await ok<Session>(post(`${url}/lantern/v1/sessions`, { settings }));
      const messages = new Map<string, string | undefined>();
      written.sessions.set(session.id, messages);
      acknowledge();
      for (const content of ["Once upon a time", " and then", " at last"]) {
        const asked = await ok<{ answers: Message[]; asked?: Message; run: { id: string } }>(
          post(`${url}/lantern/v1/sessions/${session.id}/messages`, { content }),
        );
        for (const { id } of asked.answers) messages.set(id, undefined);
        report.acknowledged.messages++;
        acknowledge();
        const events = await follow(`${url}/lantern/v1/runs/${asked.run.id}/events`).catch(
          () => [],
        );
        if (events.at(-1)?.name === undefined) throw new Gone("the server was killed");
        const all = await ok<{ messages: Message[] }>(
          ask(`${url}/lantern/v1/sessions/${session.id}/messages`),
        );
        for (const { id, content: text, state } of all.messages) {
          if (state === "complete") messages.set(id, text);
        }
        report.acknowledged.answers++;
        acknowledge();
      }
    },
    async () => {
      const size = 1 + random.below(3);
      const lines = Array.from({ length: size }, (_, at) => ({
        ...{ custom_id: `${at}`, method: "POST", url: "/v1/completions" },
        body: { model: "stories15m", prompt: "Once", max_tokens: 3, temperature: 0 },
      }));
      const more = "x".repeat(1 + random.below(500_000));
      for (const text of [more, lines.map((line) => JSON.stringify(line)).join("\n")]) {
        const form = new FormData();
        form.set("purpose", "batch");
        form.set("file", new Blob([text]), "some.jsonl");
        const file = await ok<{ id: string }>(
          ask(`${url}/v1/files`, { method: "POST", body: form }),
        );
        written.files.set(file.id, digest(text));
        report.acknowledged.files++;
        acknowledge();
        if (text === more) continue;
        const batch = await ok<{ id: string }>(
          post(`${url}/v1/batches`, {
            ...{ input_file_id: file.id, endpoint: "/v1/completions", completion_window: "24h" },
          }),
        );
        written.batches.set(batch.id, size);
        report.acknowledged.batches++;
        acknowledge();
      }
    },
    async () => {
      const prompt = `Once upon a time, number ${++names}, ${"there was a cat. ".repeat(12)}`;
      await ok(post(`${url}/completion`, { prompt, n_predict: 4, id_slot: 0, temperature: 0 }));
      // Now and then over one that is there.
      const filename = `slot-${random.below(6)}.bin`;
      await ok(post(`${url}/slots/0?action=save`, { filename }));
      written.slots.add(filename);
      report.acknowledged.slots++;
      acknowledge();
    },
  ];
  try {
    while (report.kills < kills) {
      const server = await start();
      await check(server);
      let left = 1 + random.below(12);
      let isOver = false;
      const now = Promise.withResolvers<void>();
      // At a random time, or as soon as something was acknowledged: when more may be under way.
      const acknowledge = (): void => {
        if (--left <= 0 && report.kills % 2 === 0) now.resolve();
      };
      const clients = writers(server.url, acknowledge).map(async (write) => {
        while (!isOver) await write();
      });
      const ends = clients.map((client) =>
        client.catch((error: unknown) => {
          if (!(error instanceof Gone) && !isOver) report.lost.push(String(error));
        }),
      );
      const timer = setTimeout(now.resolve, report.kills % 2 === 0 ? 20_000 : random.below(2500));
      await now.promise;
      clearTimeout(timer);
      isOver = true;
      await kill(server);
      await Promise.all(ends);
      report.kills++;
      onKill?.(report);
    }
    const last = await start();
    await check(last);
    // Every line of every batch is answered once, by whichever server.
    for (const [id, count] of written.batches) {
      for (;;) {
        const batch = await ok<{
          status: string;
          output_file_id: string;
          request_counts: { completed: number };
        }>(ask(`${last.url}/v1/batches/${id}`));
        if (batch.status === "completed") {
          const response = await ask(`${last.url}/v1/files/${batch.output_file_id}/content`);
          const ids = (await response.text())
            .trim()
            .split("\n")
            .map((line) => (JSON.parse(line) as { custom_id: string }).custom_id);
          if (new Set(ids).size !== count || ids.length !== count) {
            report.lost.push(`batch ${id} has the lines ${ids.join()} of ${count}`);
          }
          break;
        }
        if (["failed", "expired", "cancelled"].includes(batch.status)) {
          report.lost.push(`batch ${id} is ${batch.status}`);
          break;
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
    await kill(last);
    report.left = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) =>
      /\.(tmp|part|partial)\b|~$/.test(name),
    );
  } finally {
    onExit();
    process.off("exit", onExit);
  }
  return report;
}
