// What an output may replace: files of its own kind only, whenever another one came there; no input of the same command; nothing that
// is no text by a text. And what Lantern removes from folders that a user named: what it has made itself.

import { execFileSync, spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { batchFolder, createOutput, hashedInput } from "../../src/platform/node-batch.ts";
import { nodeBlockFolders } from "../../src/platform/node-block-files.ts";
import { nodeTerminal } from "../../src/platform/node-cli.ts";
import { createNodeOutputFile } from "../../src/platform/node-output-file.ts";
import { whereWeAre } from "../../src/platform/node-part-names.ts";
import { batchPlace } from "../batch/batch-store.ts";

const windows = process.platform === "win32";

let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "lantern-replace-"));
});
afterEach(() => fs.rmSync(folder, { recursive: true }));

const at = (name: string): string => join(folder, name);
const read = (name: string): string => fs.readFileSync(at(name), "utf8");
const put = (name: string, text: string | Uint8Array): void => fs.writeFileSync(at(name), text);

const notes = {
  what: "note of the test",
  bytes: 4,
  isOwn: (first: Uint8Array) => Buffer.from(first).toString() === "NOTE",
};
const begin = async (name: string) => {
  const file = await createNodeOutputFile(at(name), { replace: notes, inputs: [] });
  await file.write(Buffer.from("NOTE new"));
  return file;
};
const save = async (name: string): Promise<void> => await (await begin(name)).finish();

describe("a file that replaces only its own kind", () => {
  test("is written where nothing is, and replaces another of its kind", async () => {
    await save("note");
    put("note", "NOTE old");
    await save("note");
    expect(read("note")).toBe("NOTE new");
    expect(fs.readdirSync(folder)).toEqual(["note"]);
  });

  test.each([
    ["another's file", () => put("note", "sk-secret"), "no note of the test"],
    ["an empty file", () => put("note", ""), "no note of the test"],
    ["a folder", () => fs.mkdirSync(at("note")), "a folder"],
    [
      "a link to its kind",
      () => {
        put("other", "NOTE");
        fs.symlinkSync("other", at("note"));
      },
      "a link",
    ],
    ["a link to nothing", () => fs.symlinkSync("nothing", at("note")), "a link"],
    ["a pipe", () => void execFileSync("mkfifo", [at("note")]), "no note of the test"],
  ])("refuses %s, before it is written and after", async (_, change, what) => {
    if (windows) return;
    const message = `exists and is ${what}, so it is not replaced. Choose another name`;
    const early = await begin("note");
    change();
    const before = fs.lstatSync(at("note"));
    await expect(early.finish()).rejects.toThrow(message);
    await early.discard();
    await expect(begin("note")).rejects.toThrow(message);
    const after = fs.lstatSync(at("note"));
    expect([after.ino, after.mode, after.mtimeMs]).toEqual([
      before.ino,
      before.mode,
      before.mtimeMs,
    ]);
    expect(fs.readdirSync(folder).filter((name) => name.endsWith(".part"))).toEqual([]);
  });

  test("refuses another's file that took the place of its own kind meanwhile", async () => {
    put("note", "NOTE old");
    const file = await begin("note");
    fs.rmSync(at("note"));
    put("note", "sk-secret");
    await expect(file.finish()).rejects.toThrow("no note of the test");
    await file.discard();
    expect(read("note")).toBe("sk-secret");
  });
});

describe("a text of the command line", () => {
  const terminal = nodeTerminal();

  test("replaces a text, and nothing else", async () => {
    put("chart.svg", "<svg/>");
    await terminal.writeText(at("chart.svg"), "<svg>new</svg>");
    expect(read("chart.svg")).toBe("<svg>new</svg>");
    put("model.gguf", Buffer.from("GGUF\u0003\u0000\u0000\u0000"));
    const message = "exists and is no text file, so no text replaces it";
    await expect(terminal.checkWritable(at("model.gguf"))).rejects.toThrow(message);
    await expect(terminal.writeText(at("model.gguf"), "<svg/>")).rejects.toThrow(message);
    await expect(createOutput(at("model.gguf"))).rejects.toThrow(message);
    expect(fs.statSync(at("model.gguf")).size).toBe(8);
  });

  test("never replaces an input of the same command, whatever its name", async () => {
    put("corpus.txt", "words");
    expect(await terminal.readText(at("corpus.txt"))).toBe("words");
    fs.linkSync(at("corpus.txt"), at("also"));
    const message = "is an input of this command, which is being read";
    await expect(terminal.writeText(at("also"), "x")).rejects.toThrow(message);
    const options = { replace: true, inputs: [] };
    await expect(createNodeOutputFile(at("corpus.txt"), options)).rejects.toThrow(message);
    put("requests.jsonl", "{}\n");
    await hashedInput(at("requests.jsonl"), new AbortController().signal);
    await expect(createOutput(at("requests.jsonl"))).rejects.toThrow(message);
    expect([read("corpus.txt"), read("requests.jsonl")]).toEqual(["words", "{}\n"]);
  });
});

describe("folders that a user named", () => {
  test("of saved slots: what a killed process left half-written is removed, and nothing else", async () => {
    const dead = spawnSync(process.execPath, ["--version"]).pid;
    const others = [
      "slot.bin",
      `.slot.bin.${whereWeAre()}-${process.ppid}-01234567.part`, // a living process writes it
      `.slot.bin.0000dead-${dead}-01234567.part`, // of another machine, written just now
      ".notes.part",
      `slot.bin.${whereWeAre()}-${dead}-01234567.part`,
    ];
    const left = [
      `.slot.bin.${whereWeAre()}-${dead}-01234567.part`,
      `.a.${whereWeAre()}-${dead}-89abcdef.part`,
    ];
    for (const name of [...others, ...left]) put(name, "half");
    await nodeTerminal().checkFolder(folder);
    expect(fs.readdirSync(folder).sort()).toEqual(others.sort());
  });

  test("of saved slots: one that is no folder is refused", async () => {
    await expect(nodeTerminal().checkFolder(at("none"))).rejects.toThrow(
      `cannot write in "${at("none")}`,
    );
  });

  test("of stored state: others in them are not listed, and not removed", async () => {
    const ours = "0123456789abcdef0123456789abcdef";
    fs.mkdirSync(at("thesis"), { mode: 0o755 });
    const folders = nodeBlockFolders(folder);
    const { mode } = fs.statSync(folder);
    await folders.folder(ours);
    expect(await folders.names()).toEqual([ours]);
    await folders.remove("thesis");
    await folders.remove(ours);
    expect(fs.readdirSync(folder)).toEqual(["thesis"]);
    expect(fs.statSync(folder).mode).toBe(mode);
  });

  test("of a batch beside its output: others' files stay in it", async () => {
    fs.mkdirSync(at("out.jsonl.batch"));
    put("out.jsonl.batch/mine.txt", "mine");
    put("out.jsonl.batch/batch.db-wal", "");
    fs.mkdirSync(at("out.jsonl.batch/batch-files"));
    await batchFolder(at("out.jsonl")).remove();
    expect(fs.readdirSync(at("out.jsonl.batch"))).toEqual(["mine.txt"]);
    await batchFolder(at("new.jsonl")).remove();
    expect(fs.existsSync(at("new.jsonl.batch"))).toBe(false);
  });

  test("of a server's files: bytes without a row are removed only under names of Lantern's own", async () => {
    const place = batchPlace();
    try {
      const store = place.open();
      const lost = `file-${"0".repeat(32)}`;
      fs.mkdirSync(join(place.folder, "files"));
      for (const name of [lost, "diary", "photo.jpg"]) {
        fs.writeFileSync(join(place.folder, "files", name), "x");
      }
      await store.files.clean();
      expect(fs.readdirSync(join(place.folder, "files")).sort()).toEqual(["diary", "photo.jpg"]);
      store.close();
    } finally {
      place.remove();
    }
  });
});
