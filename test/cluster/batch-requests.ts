// Batches of completions, as a client of OpenAI's API makes them.

import type OpenAI from "openai";
import { toFile } from "openai";
import { expect } from "vitest";

export interface RequestLine {
  readonly custom_id: string;
  readonly method: "POST";
  readonly url: string;
  readonly body: Readonly<Record<string, unknown>> & { readonly prompt: string };
}

export interface OutputLine {
  readonly custom_id: string;
  readonly response: {
    readonly status_code: number;
    readonly body: {
      readonly choices: readonly { readonly text: string }[];
      readonly usage: { readonly completion_tokens: number };
    };
  };
}

/** As many requests, each with a prompt of its own. */
export function completionLines(count: number, body: object): RequestLine[] {
  return Array.from({ length: count }, (_, i) => ({
    ...{ custom_id: `line ${i}`, method: "POST", url: "/v1/completions" },
    body: { ...body, prompt: `the cat ${i}` },
  }));
}

/** Its id. */
export async function startBatch(client: OpenAI, lines: readonly RequestLine[]): Promise<string> {
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
  const input = await client.files.create({
    ...{ file: await toFile(Buffer.from(text), "in.jsonl"), purpose: "batch" },
  });
  const { id } = await client.batches.create({
    ...{ input_file_id: input.id, endpoint: "/v1/completions", completion_window: "24h" },
  });
  return id;
}

export async function answeredLines(client: OpenAI, id: string): Promise<number> {
  return (await client.batches.retrieve(id)).request_counts!.completed;
}

/** Waits for the end of a batch without errors; its output. */
export async function batchOutput(
  client: OpenAI,
  id: string,
  lines: readonly RequestLine[],
): Promise<OutputLine[]> {
  await expect
    .poll(async () => (await client.batches.retrieve(id)).status, { timeout: 180_000 })
    .toBe("completed");
  const { request_counts, output_file_id } = await client.batches.retrieve(id);
  expect(request_counts).toEqual({ total: lines.length, completed: lines.length, failed: 0 });
  const text = await (await client.files.content(output_file_id!)).text();
  const output = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as OutputLine);
  // Every line once, in the order of the input.
  expect(output.map(({ custom_id }) => custom_id)).toEqual(lines.map((line) => line.custom_id));
  return output;
}
