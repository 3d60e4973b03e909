// The configuration files of a launch, held against the bytes before it: undo puts them back, modes and links stay, and hostile places are refused before anything is written.

import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { ConfigChange } from "../../../apps/cli/launch/client.ts";
import { planFiles, restorable, restore, writeFiles } from "../../../apps/cli/launch/files.ts";
import { skippedFor } from "../../support/skips.ts";

const isRoot = process.getuid?.() === 0;

let folder: string;
let own: { join(name: string): string };
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "lantern-launch-files-"));
  own = { join: (name) => join(folder, "own", name) };
});
afterEach(() => {
  fs.chmodSync(folder, 0o700);
  fs.rmSync(folder, { recursive: true, force: true });
});

const at = (name: string, value: string = "ours"): ConfigChange => ({
  path: join(folder, name),
  format: "json",
  set: [{ at: ["a", "b"], value }],
});
const bytesOf = (name: string): string => fs.readFileSync(join(folder, name), "latin1");
const launch = (...changes: ConfigChange[]): void => writeFiles(planFiles(changes), own);

test("undo restores byte for byte, removes what was new, and keeps modes", () => {
  const odd = '{ // mine\r\n\t"a": {"b" : 1e3 ,}, "é": "\\u00e9"}  \n\n\n';
  fs.writeFileSync(join(folder, "old.json"), odd, { mode: 0o640 });
  fs.chmodSync(join(folder, "old.json"), 0o640);
  const before = bytesOf("old.json");
  launch(at("old.json"), at("deep/new.json"));
  expect(bytesOf("old.json")).toContain('"b" : "ours"');
  expect(bytesOf("old.json")).toContain("// mine");
  expect(fs.statSync(join(folder, "old.json")).mode & 0o777).toBe(0o640);
  expect(fs.statSync(join(folder, "deep/new.json")).mode & 0o777).toBe(0o600);
  expect(planFiles([at("old.json"), at("deep/new.json")])).toEqual([]); // nothing is left to do
  launch(at("old.json", "again"), at("third.json")); // the first version stays the one that is put back
  expect(restorable(own).map(({ kind, isChanged }) => [kind, isChanged])).toEqual([
    ["restored", false],
    ["removed", false],
    ["removed", false],
  ]);
  restore(own);
  expect(bytesOf("old.json")).toBe(before);
  expect(fs.statSync(join(folder, "old.json")).mode & 0o777).toBe(0o640);
  expect(fs.existsSync(join(folder, "deep/new.json"))).toBe(false);
  expect(fs.existsSync(join(folder, "third.json"))).toBe(false);
  expect(restorable(own)).toEqual([]);
  expect(fs.readdirSync(join(folder, "own"))).toEqual([]);
});

test("what somebody else changed since is known, and kept", () => {
  fs.writeFileSync(join(folder, "old.json"), "{}");
  launch(at("old.json"));
  fs.writeFileSync(join(folder, "old.json"), '{"mine": true}');
  expect(restorable(own)).toMatchObject([{ kind: "restored", isChanged: true }]);
  restore(own);
  expect(bytesOf("old.json")).toBe("{}");
  expect(bytesOf("own/changed-1")).toBe('{"mine": true}');
});

test("a link leads to the file that is changed, and stays a link", () => {
  fs.writeFileSync(join(folder, "real.json"), "{}");
  fs.symlinkSync("real.json", join(folder, "link.json"));
  launch(at("link.json"));
  expect(fs.lstatSync(join(folder, "link.json")).isSymbolicLink()).toBe(true);
  expect(bytesOf("real.json")).toContain("ours");
  restore(own);
  expect(bytesOf("real.json")).toBe("{}");
  expect(fs.readlinkSync(join(folder, "link.json"))).toBe("real.json");
});

test("one bad file stops all, before anything is written", () => {
  fs.writeFileSync(join(folder, "good.json"), "{}");
  fs.writeFileSync(join(folder, "damaged.json"), '{"a": ');
  fs.writeFileSync(join(folder, "bytes.json"), Buffer.from([0x7b, 0xff, 0x7d]));
  fs.mkdirSync(join(folder, "folder.json"));
  fs.symlinkSync("nowhere", join(folder, "broken.json"));
  fs.symlinkSync("circle.json", join(folder, "circle.json"));
  fs.writeFileSync(join(folder, "large.json"), Buffer.alloc(9 * 2 ** 20, 32));
  const refusals: [string, RegExp][] = [
    ["damaged.json", /is not changed: it is damaged: line 1/],
    ["bytes.json", /it is no UTF-8 text/],
    ["folder.json", /is no plain file/],
    ["broken.json", /is a link to nowhere, which is not there/],
    ["circle.json", /link/],
    ["large.json", /has 9437184 bytes/],
    ["good.json/below.json", /a part of the path is a file/],
  ];
  for (const [name, words] of refusals) {
    expect(() => launch(at("good.json"), at(name)), name).toThrow(words);
    expect(bytesOf("good.json")).toBe("{}");
  }
  expect(fs.existsSync(join(folder, "own"))).toBe(false);
});

test.skipIf(isRoot)(
  `a folder that cannot be written is refused${skippedFor("root may write everywhere", isRoot)}`,
  () => {
    fs.chmodSync(folder, 0o500);
    expect(() => planFiles([at("new.json")])).toThrow(/cannot write .*permission denied/);
    expect(() => planFiles([at("deep/new.json")])).toThrow(/cannot write .*permission denied/);
  },
);

test("a damaged record undoes nothing", () => {
  fs.writeFileSync(join(folder, "old.json"), "{}");
  launch(at("old.json"));
  const record = own.join("record.json");
  const changed = bytesOf("old.json");
  for (const text of ["", "[{}]", '[{"path": 1, "text": ""}]', "{}"]) {
    fs.writeFileSync(record, text);
    expect(() => restore(own), text).toThrow("is damaged");
    expect(bytesOf("old.json")).toBe(changed);
  }
  expect(bytesOf("own/backup-1")).toBe("{}");
});
