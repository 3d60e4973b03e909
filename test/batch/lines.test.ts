// Lines of an input file: however its bytes are cut, whatever they are.

import { describe, expect, test } from "vitest";
import { batchLimits } from "../../apps/batch/batch.ts";
import { orderKey, parseLine, type RawLine, rawLines } from "../../apps/batch/lines.ts";

async function linesIn(pieces: readonly (string | Uint8Array)[]): Promise<RawLine[]> {
  const utf8 = new TextEncoder();
  async function* all() {
    for (const piece of pieces) yield typeof piece === "string" ? utf8.encode(piece) : piece;
  }
  const lines: RawLine[] = [];
  for await (const line of rawLines(all())) lines.push(line);
  return lines;
}

const text = ({ bytes }: RawLine): string => new TextDecoder().decode(bytes);

describe("lines of bytes", () => {
  const whole = '{"a":"ä"}\n\nlast line without an end';
  test.each([1, 2, 3, 7, 100])("in pieces of %i bytes", async (size) => {
    const bytes = new TextEncoder().encode(whole);
    const pieces: Uint8Array[] = [];
    for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size));
    const lines = await linesIn(pieces);
    expect(lines.map(text)).toEqual(['{"a":"ä"}', "", "last line without an end"]);
    expect(lines.map(({ number }) => number)).toEqual([1, 2, 3]);
    for (const line of lines) {
      expect(new TextDecoder().decode(bytes.subarray(line.start, line.end))).toBe(text(line));
    }
  });

  test("a line that is too long is named, and the next one is read", async () => {
    const long = "x".repeat(batchLimits.lineBytes + 1);
    const lines = await linesIn([long, "\n", "{}", "\n"]);
    expect(lines.map(({ bytes }) => bytes?.length)).toEqual([undefined, 2]);
    expect(parseLine(lines[0]!)).toMatchObject({ code: "line_too_long", line: 1 });
    expect(lines[1]).toMatchObject({ start: long.length + 1, end: long.length + 3 });
  });
});

describe("what is wrong with a line", () => {
  const good = { custom_id: "a", method: "POST", url: "/v1/completions", body: { prompt: "x" } };
  const cases: [string, string | Uint8Array, string | undefined, string | null][] = [
    ["no JSON", "{", "invalid_json_line", null],
    ["no UTF-8", new Uint8Array([0x22, 0xff, 0x22]), "invalid_json_line", null],
    ["no object", "[1]", "invalid_json_line", null],
    ["null", "null", "invalid_json_line", null],
    ["no id", JSON.stringify({ ...good, custom_id: undefined }), "invalid_request", "custom_id"],
    [
      "an id that is no text",
      JSON.stringify({ ...good, custom_id: 7 }),
      "invalid_request",
      "custom_id",
    ],
    ["an empty id", JSON.stringify({ ...good, custom_id: "" }), "invalid_request", "custom_id"],
    [
      "a long id",
      JSON.stringify({ ...good, custom_id: "x".repeat(513) }),
      "invalid_request",
      "custom_id",
    ],
    ["GET", JSON.stringify({ ...good, method: "GET" }), "invalid_request", "method"],
    ["no url", JSON.stringify({ ...good, url: null }), "invalid_request", "url"],
    ["a body that is a list", JSON.stringify({ ...good, body: [] }), "invalid_request", "body"],
    [
      "a stream",
      JSON.stringify({ ...good, body: { stream: true } }),
      "invalid_request",
      "body.stream",
    ],
  ];
  test.each(cases)("%s", (_, content, code, param) => {
    const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
    const line = { number: 3, start: 0, end: bytes.length, bytes };
    expect(parseLine(line)).toMatchObject({ code, param, line: 3 });
  });

  test("nothing", () => {
    const bytes = new TextEncoder().encode(JSON.stringify(good));
    const line = { number: 1, start: 0, end: bytes.length, bytes };
    expect(parseLine(line)).toEqual({ customId: "a", url: good.url, body: good.body });
    expect(parseLine({ ...line, bytes: new TextEncoder().encode(" \r") })).toBeUndefined();
  });
});

test("requests whose prompts begin alike come one after the other", () => {
  const chat = (...contents: unknown[]) => ({ messages: contents.map((content) => ({ content })) });
  const bodies = [
    chat("You are kind.", "B"),
    { prompt: "zebra" },
    chat("You are rude.", "A"),
    chat("You are kind.", "A"),
    { input: [1, 2, 3] },
    chat([{ type: "text", text: "parts" }]),
    chat(null),
  ];
  const sorted = bodies.toSorted((a, b) => (orderKey(a) < orderKey(b) ? -1 : 1));
  const at = (body: object): number => sorted.indexOf(body as (typeof bodies)[number]);
  expect(Math.abs(at(bodies[0]!) - at(bodies[3]!))).toBe(1);
  expect(orderKey({ prompt: "x".repeat(10_000) }).length).toBeLessThan(500);
});
