// quantize, imatrix, perplexity and convert as a user starts them: a process of its own, real files, and what goes wrong.
// After every failure the folder holds what it held before, byte for byte, and the message says what is wrong.
//
// What the tools compute is the business of the other tests here.

import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { inspect } from "../../src/index.ts";
import { tinyGguf } from "../support/tiny-file.ts";
import { sampleModel, samples } from "./quantize-model.ts";
import { tinyFolder } from "./tiny-folder.ts";

const launcher = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
const posix = process.platform !== "win32";
const isRoot = process.getuid?.() === 0;
const words = "the cat sat at the sea and ate eels, the eels at the sea sat; ";

let folder = "";
let cache = "";
const at = (name: string) => join(folder, name);

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "lantern-commands-"));
  cache = mkdtempSync(join(tmpdir(), "lantern-commands-cache-"));
  const tiny = await tinyGguf();
  writeFileSync(at("tiny.gguf"), tiny);
  writeFileSync(at("cut.gguf"), tiny.subarray(0, tiny.length / 2));
  writeFileSync(at("incomplete.gguf"), renamed(tiny, "blk.1.ffn_up.weight", "blk.1.ffn_xx.weight"));
  writeFileSync(at("untied.gguf"), await sampleModel(samples.f32!));
  writeFileSync(at("text.txt"), words.repeat(8));
  writeFileSync(at("short.txt"), "the cat");
  writeFileSync(at("empty.txt"), "");
  mkdirSync(at("hf"));
  for (const [name, bytes] of Object.entries(tinyFolder())) writeFileSync(at(`hf/${name}`), bytes);
  mkdirSync(at("hf-cut"));
  for (const [name, bytes] of Object.entries(tinyFolder())) {
    const kept = name.endsWith(".safetensors") ? bytes.subarray(0, bytes.length / 2) : bytes;
    writeFileSync(at(`hf-cut/${name}`), kept);
  }
  mkdirSync(at("locked"));
  chmodSync(at("locked"), 0o555);
  if (posix) symlinkSync(at("tiny.gguf"), at("link.gguf"));
});
afterAll(() => {
  for (const made of [folder, cache]) rmSync(made, { recursive: true, force: true });
});

/** Another name of the same length: the header stays as long as it was. */
function renamed(file: Uint8Array, from: string, to: string): Uint8Array {
  const text = Buffer.from(file).toString("latin1");
  expect(text).toContain(from);
  return Buffer.from(text.replace(from, to), "latin1");
}

interface Ended {
  code: number | null;
  out: string;
  err: string;
}

function start(args: readonly string[], shell?: string): ChildProcess {
  // The machine's own measurements and models are none of these tests' business.
  const env = { ...process.env, LANTERN_NO_LIMIT: "1", LANTERN_CACHE: cache };
  const command = [process.execPath, launcher, ...args];
  if (shell === undefined) return spawn(command[0]!, command.slice(1), { env, cwd: folder });
  const quoted = command.map((word) => `'${word}'`).join(" ");
  return spawn("sh", ["-c", `${shell}; exec ${quoted}`], { env, cwd: folder });
}

async function ended(child: ChildProcess): Promise<Ended> {
  let [out, err] = ["", ""];
  child.stdout!.on("data", (piece: Buffer) => {
    out += piece.toString();
  });
  child.stderr!.on("data", (piece: Buffer) => {
    err += piece.toString();
  });
  const [code] = (await once(child, "close")) as [number | null];
  return { code, out, err };
}

const lantern = (...args: string[]): Promise<Ended> => ended(start(args));

/** All files with their contents, as one text. */
function contents(): string {
  const paths = readdirSync(folder, { recursive: true, encoding: "utf8" }).sort();
  return paths
    .filter((path) => statSync(at(path)).isFile())
    .map(
      (path) =>
        `${path} ${createHash("sha256")
          .update(readFileSync(at(path)))
          .digest("hex")}`,
    )
    .join("\n");
}

async function fails(args: string[], code: number, message: RegExp, shell?: string): Promise<void> {
  const before = contents();
  const result = await ended(start(args, shell));
  expect(result.err).toMatch(message);
  expect(result.err).toMatch(/^lantern: |\nlantern: /);
  expect(result.err).not.toMatch(/\n {4}at /); // a stack is for bugs
  expect(result).toMatchObject({ code, out: "" });
  expect(contents()).toBe(before);
}

const q = (...rest: string[]) => ["quantize", ...rest];
const measure = ["-c", "32", "--chunks", "2", "-t", "1"];
const imatrixOf = (model: string, ...rest: string[]) => ["imatrix", "-m", model, ...rest];
const perplexityOf = (model: string, ...rest: string[]) => ["perplexity", "-m", model, ...rest];

/** [what, arguments, exit code, message]. */
type Case = [string, string[], number, RegExp];
const cases: Readonly<Record<string, readonly Case[]>> = {
  quantize: [
    ["no such input", q("no.gguf", "o.gguf", "Q4_0"), 3, /no file or folder "no\.gguf"/],
    ["a text as input", q("text.txt", "o.gguf", "Q4_0"), 4, /text\.txt/],
    ["an empty input", q("empty.txt", "o.gguf", "Q4_0"), 4, /empty\.txt/],
    ["a wrong type", q("tiny.gguf", "o.gguf", "Q9_9"), 2, /got "Q9_9", expected one of .*Q4_K_M/],
    ["no type", q("tiny.gguf", "o.gguf"), 2, /missing required argument 'type'/],
    [
      "a truncated input",
      q("cut.gguf", "o.gguf", "Q4_0"),
      4,
      /cut\.gguf.*expected at most the file/s,
    ],
    [
      "a missing tensor",
      q("incomplete.gguf", "o.gguf", "Q4_0"),
      4,
      /lacks these weights.*: blk\.1\.ffn_up\.weight/,
    ],
    ["output = input", q("tiny.gguf", "tiny.gguf", "Q4_0", "--force"), 2, /is being read/],
    [
      "output = input, spelled otherwise",
      q("tiny.gguf", "./hf/../tiny.gguf", "Q4_0", "--force"),
      2,
      /is being read/,
    ],
    ["an output that exists", q("tiny.gguf", "text.txt", "Q4_0"), 2, /exists already.*--force/],
    ["an output in no folder", q("tiny.gguf", "no/o.gguf", "Q4_0"), 3, /there is no folder "no"/],
    ["a folder as output", q("tiny.gguf", "hf", "Q4_0"), 2, /is a folder/],
    [
      "a wrong imatrix",
      q("tiny.gguf", "o.gguf", "Q4_0", "--imatrix", "tiny.gguf"),
      4,
      /importance matrix/,
    ],
    ["no such imatrix", q("tiny.gguf", "o.gguf", "Q4_0", "--imatrix", "no.gguf"), 3, /no\.gguf/],
    ["a chart without a text", q("tiny.gguf", "o.gguf", "Q4_0", "--plot", "p.svg"), 2, /--text/],
    ["a text without a report", q("tiny.gguf", "o.gguf", "Q4_0", "-f", "text.txt"), 2, /--report/],
    [
      "a text that is not there",
      q("tiny.gguf", "o.gguf", "Q4_0", "--report", "-f", "no.txt"),
      3,
      /no\.txt/,
    ],
    ["a wrong number of threads", q("tiny.gguf", "o.gguf", "Q4_0", "-t", "0"), 2, /--threads/],
  ],
  imatrix: [
    ["no text", imatrixOf("tiny.gguf"), 2, /got no text, expected a file. Name one with -f/],
    ["a text that is not there", imatrixOf("tiny.gguf", "-f", "no.txt"), 3, /no\.txt/],
    [
      "a text that is too short",
      imatrixOf("tiny.gguf", "-f", "short.txt", "-c", "32"),
      2,
      /one window of 32/,
    ],
    ["no such model", imatrixOf("no.gguf", "-f", "text.txt"), 3, /no file or folder "no\.gguf"/],
    [
      "a truncated model",
      imatrixOf("cut.gguf", "-f", "text.txt"),
      4,
      /cut\.gguf.*expected at most the file/s,
    ],
    [
      "a missing tensor",
      imatrixOf("incomplete.gguf", "-f", "text.txt"),
      4,
      /missing: blk\.1\.ffn_up\.weight/,
    ],
    [
      "output = model",
      imatrixOf("tiny.gguf", "-f", "text.txt", "-o", "tiny.gguf", "--force"),
      2,
      /is being read/,
    ],
    [
      "an output that exists",
      imatrixOf("tiny.gguf", "-f", "text.txt", "-o", "short.txt"),
      2,
      /exists already/,
    ],
  ],
  perplexity: [
    ["a text that is not there", perplexityOf("tiny.gguf", "-f", "no.txt"), 3, /no\.txt/],
    [
      "a truncated model",
      perplexityOf("cut.gguf", "-f", "text.txt"),
      4,
      /cut\.gguf.*expected at most the file/s,
    ],
    [
      "a missing tensor",
      perplexityOf("incomplete.gguf", "-f", "text.txt"),
      4,
      /missing: blk\.1\.ffn_up\.weight/,
    ],
    ["a base that is none", perplexityOf("tiny.gguf", "--kl-base", "tiny.gguf"), 4, /tiny\.gguf/],
    [
      "a base over the model",
      perplexityOf(
        "tiny.gguf",
        "-f",
        "text.txt",
        "--save-base",
        "tiny.gguf",
        "--force",
        ...measure,
      ),
      2,
      /is being read/,
    ],
  ],
  convert: [
    ["no such folder", ["convert", "./no", "o.gguf"], 3, /no file or folder ".\/no"/],
    ["a wrong type", ["convert", "hf", "o.gguf", "--type", "q9"], 2, /"q9".*q8_0/],
    ["a truncated input", ["convert", "hf-cut", "o.gguf"], 4, /safetensors/],
    ["output = input", ["convert", "hf", "hf/model.safetensors", "--force"], 2, /is being read/],
    ["an output in no folder", ["convert", "hf", "no/o.gguf"], 3, /there is no folder "no"/],
  ],
};

describe.each(Object.keys(cases))(
  "lantern %s: what is wrong is said, and nothing is lost",
  (command) => {
    test.each([...cases[command]!])("%s", async (_, args, code, message) => {
      await fails(args, code, message);
    });
  },
);

const links = posix ? "" : " [skipped: links need rights on this system]";
test.skipIf(links !== "")(`quantize: a link to the input as output${links}`, async () => {
  await fails(q("tiny.gguf", "link.gguf", "Q4_0", "--force"), 2, /is being read/);
});

const locked =
  posix && !isRoot ? "" : " [skipped: root writes everywhere, and Windows knows no such mode]";
test.skipIf(locked !== "")(`a folder that cannot be written to${locked}`, async () => {
  await fails(q("tiny.gguf", "locked/o.gguf", "Q4_0"), 3, /locked.*permission denied/);
  await fails(["convert", "hf", "locked/o.gguf"], 3, /locked.*permission denied/);
});

const roomless =
  process.platform === "linux" ? "" : " [skipped: needs Linux's /sys, a disk of 0 bytes]";
test.skipIf(roomless !== "")(
  `a disk without room is refused before the work${roomless}`,
  async () => {
    await fails(
      q("tiny.gguf", "/sys/o.gguf", "Q4_0"),
      3,
      /needs \d+ bytes, but the disk has 0 left/,
    );
    await fails(["convert", "hf", "/sys/o.gguf"], 3, /needs \d+ bytes, but the disk has 0 left/);
  },
);

const limited = posix ? "" : " [skipped: needs ulimit]";
describe.skipIf(limited !== "")(`a disk that takes no more${limited}`, () => {
  // Files of at most 16 blocks (of 512 or 1024 bytes): the header fits, the tensors do not.
  const small = "ulimit -f 16";
  const full = /cannot write ".*": files on this disk cannot be that large/;
  test.each<[string, string[]]>([
    ["quantize", q("tiny.gguf", "o.gguf", "Q8_0", "-t", "1")],
    ["convert", ["convert", "hf", "o.gguf"]],
    [
      "perplexity",
      perplexityOf("tiny.gguf", "-f", "text.txt", "--save-base", "o.base", ...measure),
    ],
  ])("%s", async (_, args) => await fails(args, 3, full, small));
});

describe.skipIf(!posix)(`Ctrl-C leaves nothing${posix ? "" : " [skipped: no signals]"}`, () => {
  /** Starts a command that takes long, and interrupts it when its unfinished file is there. */
  async function interrupt(args: string[]): Promise<Ended> {
    const child = start(args);
    const result = ended(child);
    const begun = () => readdirSync(folder).some((name) => name.endsWith(".part"));
    while (child.exitCode === null && !begun()) await new Promise((go) => setTimeout(go, 5));
    child.kill("SIGINT");
    return await result;
  }

  test("quantize", async () => {
    // Slow enough to be met at it: 12 million weights by search, on one thread.
    writeFileSync(
      at("large.gguf"),
      await sampleModel({ ...samples.f32!, embed: 1024, feedForward: 2048, vocab: 1000 }),
    );
    const before = contents();
    const { code, out } = await interrupt(q("large.gguf", "o.gguf", "Q3_K_M", "-t", "1"));
    expect({ code, out }).toEqual({ code: 130, out: "" });
    expect(contents()).toBe(before);
    rmSync(at("large.gguf"));
  });

  test("imatrix", async () => {
    writeFileSync(at("long.txt"), words.repeat(3000));
    const before = contents();
    const args = imatrixOf("tiny.gguf", "-f", "long.txt", "-o", "o.gguf", "-c", "32", "-t", "1");
    const { code, out } = await interrupt(args);
    expect({ code, out }).toEqual({ code: 130, out: "" });
    expect(contents()).toBe(before);
    rmSync(at("long.txt"));
  });
});

/** The bytes of output.weight [40, 256] in the sample: three norms [256] stand behind it. */
function outputOf(file: Uint8Array): Uint8Array {
  const end = file.length - 3 * 256 * 4;
  return file.subarray(end - 40 * 256 * 4, end);
}

describe("what is right", () => {
  test("imatrix, quantize with it, the report, and the same perplexity as the command's", async () => {
    const matrix = await lantern(
      ...imatrixOf("tiny.gguf", "-f", "text.txt", "-o", "i.gguf", ...measure),
    );
    expect(matrix).toMatchObject({ code: 0, out: "" });
    expect(matrix.err).toMatch(/^i\.gguf: 14 matrices, 2 windows of 32 tokens/m);

    const args = q("tiny.gguf", "q8.gguf", "Q8_0", "--imatrix", "i.gguf", "--report", "--json");
    const report = await lantern(...args, "-f", "text.txt", ...measure, "--plot", "sizes.svg");
    expect(report.code).toBe(0);
    expect(readFileSync(join(folder, "sizes.svg"), "utf8")).toMatch(/<svg [\s\S]*>Q8_0<\/text>/);
    const { type, perplexity, tensors } = JSON.parse(report.out) as {
      type: string;
      perplexity: Record<"before" | "after", { value: number; error: number }>;
      tensors: { name: string; relativeError?: number }[];
    };
    expect(type).toBe("Q8_0");
    const query = tensors.find(({ name }) => name === "blk.0.attn_q.weight")!;
    expect(query.relativeError).toBeGreaterThan(0);
    for (const [file, when] of [
      ["tiny.gguf", "before"],
      ["q8.gguf", "after"],
    ] as const) {
      const measured = await lantern(...perplexityOf(file, "-f", "text.txt", "--json", ...measure));
      const own = JSON.parse(measured.out) as { perplexity: number; error: number };
      expect(perplexity[when]).toEqual({ value: own.perplexity, error: own.error });
    }
    rmSync(at("q8.gguf"));
    rmSync(at("i.gguf"));
  });

  test("--leave-output-tensor keeps output.weight as it is, byte for byte", async () => {
    for (const [flags, type] of [
      [["--leave-output-tensor"], "f32"],
      [[], "q6_k"],
    ] as const) {
      const { code } = await lantern(...q("untied.gguf", "o.gguf", "Q4_0", "-t", "1", ...flags));
      expect(code).toBe(0);
      const { tensors } = await inspect(at("o.gguf"));
      const typeOf = (wanted: string) => tensors.find(({ name }) => name === wanted)!.dtype;
      expect(typeOf("output.weight")).toBe(type);
      expect(typeOf("blk.0.attn_q.weight")).toBe("q4_0");
      const bytes = readFileSync(at("o.gguf"));
      expect(bytes.includes(outputOf(readFileSync(at("untied.gguf"))))).toBe(type === "f32");
      rmSync(at("o.gguf"));
    }
  });

  test("convert, then quantize what came of it", async () => {
    const converted = await lantern("convert", "hf", "c.gguf", "--type", "f16");
    expect(converted.code).toBe(0);
    expect(converted.out).toMatch(/^c\.gguf: llama, /);
    expect(await lantern(...q("c.gguf", "c8.gguf", "Q8_0", "--dry-run"))).toMatchObject({
      code: 0,
    });
    expect(readdirSync(folder)).not.toContain("c8.gguf");
    expect((await lantern(...q("c.gguf", "c8.gguf", "Q8_0"))).code).toBe(0);
    expect((await lantern("inspect", "c8.gguf")).out).toMatch(/q8_0/i);
    rmSync(at("c.gguf"));
    rmSync(at("c8.gguf"));
  });
});
