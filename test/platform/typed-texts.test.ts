// What was typed in chats, as a file: private, bounded, whole with several writers, and no error when it is damaged.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { nodeTypedTexts } from "../../src/platform/node-typed-texts.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-typed-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const env = () => ({ LANTERN_DATA: folder });
const file = () => join(folder, "typed.jsonl");

test("texts of many lines come back, from a file for this user only", async () => {
  const texts = nodeTypedTexts(env());
  expect(await texts.read()).toEqual([]);
  for (const text of ["one", "two\nlines\u2028", "日本 \x1b"]) await texts.add(text);
  expect(await nodeTypedTexts(env()).read()).toEqual(["one", "two\nlines\u2028", "日本 \x1b"]);
  if (process.platform !== "win32") expect(statSync(file()).mode & 0o777).toBe(0o600);
});

test("what is damaged is left out", async () => {
  const texts = nodeTypedTexts(env());
  await texts.add("one");
  appendFileSync(file(), '\n{"a":1}\n7\n\0\xff\n"half a li');
  await texts.add("two");
  expect(await texts.read()).toEqual(["one", "two"]);
  writeFileSync(file(), new Uint8Array(1000).fill(0xff));
  expect(await texts.read()).toEqual([]);
  rmSync(file());
  mkdirSync(file());
  expect(await texts.read()).toEqual([]);
  await expect(texts.add("three")).rejects.toThrow("it is a folder");
});

test("the file is bounded, and the newest are kept", async () => {
  const texts = nodeTypedTexts(env(), { full: 2000, longest: 500 });
  for (let at = 0; at < 1000; at++) await texts.add(`text ${at}`);
  await texts.add("x".repeat(501));
  const found = await texts.read();
  expect(found.length).toBeGreaterThan(100);
  expect(found).toEqual(found.map((_, at) => `text ${1000 - found.length + at}`));
  expect(statSync(file()).size).toBeLessThan(2100);
  expect(statSync(join(folder, "typed-older.jsonl")).size).toBeLessThan(2100);
});

test("two chats at once lose nothing", async () => {
  const module = new URL("../../src/platform/node-typed-texts.ts", import.meta.url).href;
  const source = `
    const { nodeTypedTexts } = await import(${JSON.stringify(module)});
    const texts = nodeTypedTexts(${JSON.stringify(env())}, { full: 4000 });
    for (let at = 0; at < 250; at++) await texts.add(process.argv[1] + at);
  `;
  const writers = ["a", "b", "c"].map((name) =>
    spawn(process.execPath, ["--input-type=module", "-e", source, name], { stdio: "inherit" }),
  );
  const codes = await Promise.all(writers.map(async (child) => (await once(child, "exit"))[0]));
  expect(codes).toEqual([0, 0, 0]);
  const found = await nodeTypedTexts(env(), { full: 4000 }).read();
  expect(found).toHaveLength(750);
  for (const name of ["a", "b", "c"]) {
    const own = found.filter((text) => text.startsWith(name));
    expect(own).toEqual(Array.from({ length: 250 }, (_, at) => `${name}${at}`));
  }
});
