// Conversion that must not succeed: every error names what is wrong, nothing is left behind, and nothing is lost.

import { spawnSync } from "node:child_process";
import {
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { AbortedError, convert, inspect, SourceError, UsageError } from "../../src/index.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";
import { skippedFor } from "../support/skips.ts";
import { asFiles, type Files, type FolderOptions, jsonFile, tinyFolder } from "./tiny-folder.ts";

let folder: string;
let model: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-convert-"));
  model = join(folder, "model");
  writeFolder(tinyFolder());
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function writeFolder(files: Files): void {
  mkdirSync(model, { recursive: true });
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(model, name), bytes);
}

const out = (): string => join(folder, "out.gguf");

/** What is in the folder besides the model: nothing may stay after a failure. */
const left = (): string[] => readdirSync(folder).filter((name) => name !== "model");

describe("the output", () => {
  test("is there, whole, and alone", async () => {
    const { bytes } = await convert(model, out());
    expect(left()).toEqual(["out.gguf"]);
    expect((await inspect(out())).totalBytes).toBe(bytes);
  });

  test("that exists is refused, and replaced when that is asked for", async () => {
    writeFileSync(out(), "precious");
    await expect(convert(model, out())).rejects.toThrow(
      /out\.gguf" exists already\. Choose another name, or (--force|`replace: true`)/,
    );
    expect(readFileSync(out(), "utf8")).toBe("precious");
    await convert(model, out(), { replace: true });
    expect((await inspect(out())).architecture).toBe("llama");
    expect(left()).toEqual(["out.gguf"]);
  });

  test.each([
    ["a file of the input", () => join(model, "model.safetensors")],
    ["another spelling of one", () => join(model, "..", "model", ".", "tokenizer.json")],
    [
      "a link to one",
      () => {
        symlinkSync(join(model, "config.json"), join(folder, "link"));
        return join(folder, "link");
      },
    ],
    [
      "another name of one",
      () => {
        linkSync(join(model, "model.safetensors"), join(folder, "hard"));
        return join(folder, "hard");
      },
    ],
  ])("is never %s, whatever is asked for", async (_what, path) => {
    const place = path();
    const before = readFileSync(place);
    await expect(convert(model, place, { replace: true })).rejects.toThrow(
      /is a file of the input ".*model", which is being read\. Choose another name/,
    );
    expect(readFileSync(place)).toEqual(before);
  });

  test("may be another file of the input's folder", async () => {
    await convert(model, join(model, "model.gguf"));
    await convert(model, join(model, "model.gguf"), { replace: true });
    expect(existsSync(join(model, "model.gguf"))).toBe(true);
  });

  test("behind a link goes where the link points", async () => {
    const real = join(folder, "real.gguf");
    writeFileSync(real, "old");
    symlinkSync(real, out());
    await convert(model, out(), { replace: true });
    expect((await inspect(real)).architecture).toBe("llama");
    expect((await inspect(out())).architecture).toBe("llama");
  });

  test.each([
    ["a folder", () => model, UsageError, /"is a folder|is a folder, expected a file name/],
    ["empty", () => "", UsageError, /empty path/],
    ["no regular file", () => "/dev/null", UsageError, /"\/dev\/null" is not a regular file/],
    ["nowhere", () => join(folder, "no", "x.gguf"), SourceError, /there is no folder ".*no"/],
    ["below a file", () => join(model, "config.json", "x"), SourceError, /there is no folder/],
    ["too long a name", () => join(folder, "x".repeat(300)), SourceError, /the name is too long/],
  ])("that is %s", async (_what, path, type, message) => {
    const failure = convert(model, path(), { replace: true });
    await expect(failure).rejects.toThrow(type);
    await expect(failure).rejects.toThrow(message);
    expect(left()).toEqual([]);
  });

  test("keeps its old content when the input turns out to be damaged half way", async () => {
    writeFileSync(out(), "precious");
    let steps = 0;
    const truncate = () => {
      // After the header was read and found to be right.
      if (++steps === 3) writeFileSync(join(model, "model.safetensors"), "gone");
    };
    await expect(convert(model, out(), { replace: true, onProgress: truncate })).rejects.toThrow(
      /the file ends at byte .* it was changed while it was read/,
    );
    expect(readFileSync(out(), "utf8")).toBe("precious");
    expect(left()).toEqual(["out.gguf"]);
  });

  test("is gone after an abort", async () => {
    const controller = new AbortController();
    const sizes: number[] = [];
    const onProgress = ({ loadedBytes }: { loadedBytes: number }) => {
      sizes.push(left().length);
      if (loadedBytes > 100_000) controller.abort();
    };
    const failure = convert(model, out(), { signal: controller.signal, onProgress });
    await expect(failure).rejects.toThrow(AbortedError);
    expect(Math.max(...sizes)).toBe(1); // the unfinished file was there meanwhile
    expect(left()).toEqual([]);
  });

  test("of a sink that fails is the sink's error", async () => {
    let written = 0;
    const write = async (bytes: Uint8Array): Promise<void> => {
      written += bytes.byteLength;
      if (written > 50_000) throw new SourceError("sink: full");
    };
    await expect(convert(model, { write })).rejects.toThrow("sink: full");
  });

  test.skipIf(process.platform !== "linux")(
    `is gone when writing it fails (a limit on the size of files)${skippedFor("not Linux", process.platform !== "linux")}`,
    () => {
      const command = `ulimit -f 100; exec "$0" "$@"`; // blocks of 512 or 1024 bytes
      const bin = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
      const { status, stderr } = spawnSync(
        "sh",
        ["-c", command, process.execPath, bin, "convert", model, out()],
        { encoding: "utf8" },
      );
      expect(stderr).toMatch(/lantern: output: cannot write ".*out\.gguf": files on this disk/);
      expect(status).toBe(3);
      expect(left()).toEqual([]);
    },
  );
});

describe("the input", () => {
  const cases: [what: string, change: (files: Files) => void, message: RegExp][] = [
    ["no config.json", (files) => void delete files["config.json"], /got "[^"]*", expected one of/],
    [
      "no tokenizer.json",
      (files) => void delete files["tokenizer.json"],
      /tokenizer\.json: got "no such file"/,
    ],
    ["no weights", (files) => void delete files["model.safetensors"], /expected one of/],
    [
      "weights that are cut off",
      (files) => {
        files["model.safetensors"] = files["model.safetensors"]!.slice(0, -1000);
      },
      /safetensors: model\.safetensors: tensor "[^"]+" data: got "bytes \d+ to \d+", expected an end within/,
    ],
    [
      "a header that is cut off",
      (files) => {
        files["model.safetensors"] = files["model.safetensors"]!.slice(0, 100);
      },
      /safetensors: model\.safetensors: header length: got \d+, expected/,
    ],
  ];
  test.each(cases)("with %s", async (_what, change, message) => {
    const files = tinyFolder();
    change(files);
    await expectFailure(asFiles(files), message);
  });

  const options: [what: string, options: FolderOptions, message: RegExp][] = [
    [
      "an architecture that is not known",
      { config: { model_type: "rwkv" } },
      /config\.json: model_type: got ".*rwkv.*", expected one of llama, mistral, mixtral, bamboo, qwen2, qwen3/,
    ],
    [
      "a tensor too few",
      { config: { num_hidden_layers: 3 } },
      /9 weights do not fit .*missing: blk\.2\.attn_norm\.weight \[64\]/s,
    ],
    [
      "tensors too many",
      { config: { num_hidden_layers: 1 } },
      /9 weights do not fit .*unexpected: blk\.1\.attn_norm\.weight/s,
    ],
    [
      "tensors of another shape",
      { config: { intermediate_size: 128 } },
      /6 weights do not fit .*shape: blk\.0\.ffn_gate\.weight is \[96, 64\], expected \[128, 64\]/s,
    ],
    [
      "more tokens than rows",
      { padding: -4 },
      /the vocabulary has 267 tokens, but the embedding table .* has 263 rows/,
    ],
    [
      "a tokenizer that GGUF has no form for",
      { tokenizerJson: { pre_tokenizer: { type: "Whitespace" }, decoder: null } },
      /neither byte-level BPE \(ByteLevel\) nor of the Llama 2 family \(byte_fallback\)/,
    ],
  ];
  test.each(options)("with %s", async (_what, change, message) => {
    await expectFailure(asFiles(tinyFolder(change)), message);
  });

  test("with a part missing", async () => {
    const files = tinyFolder({ shards: 3 });
    delete files["model-00002-of-00003.safetensors"];
    await expectFailure(
      asFiles(files),
      /weight_map: model-00002-of-00003\.safetensors: got "no such file"/,
    );
  });

  test("that is a GGUF file already", async () => {
    await convert(model, out());
    await expectFailure(out(), /is a GGUF file already. "lantern quantize"/, ["out.gguf"]);
  });

  test("that is not there", async () => {
    await expectFailure(join(folder, "nothing"), /nothing/);
  });

  async function expectFailure(
    input: string | File[],
    message: RegExp,
    before: string[] = [],
  ): Promise<void> {
    await expect(convert(input, join(folder, "failed.gguf"))).rejects.toThrow(message);
    expect(left()).toEqual(before);
  }
});

describe("options", () => {
  test.each([
    [{ type: "q3_k" }, /type: got "q3_k", expected one of auto, f32, f16, q8_0, bf16\. "lantern/],
    [{ force: true }, /unknown option "force"\. Known: type, pre, replace, signal, onProgress/],
    [{ pre: "klingon" }, /tokenizer\.ggml\.pre is "klingon", .* does not support/],
  ])("%o", async (options, message) => {
    await expect(convert(model, out(), options as object)).rejects.toThrow(message);
    expect(left()).toEqual([]);
  });
});

describe("lantern convert", () => {
  test("writes the file and says what is in it", async () => {
    const terminal = new FakeTerminal();
    expect(await main(["convert", model, out(), "--type", "f16"], terminal)).toBe(0);
    expect(terminal.stdout).toMatch(
      /out\.gguf: llama, 95\.9 k parameters, \d+\.\d kB\nf16 +16 tensors +\d+\.\d kB\nf32 +5 tensors/,
    );
    expect(terminal.stderr).toBe("");
    expect(await main(["convert", model, out(), "--force", "--json"], terminal)).toBe(0);
    const json = JSON.parse(terminal.stdout.split("\n").at(-2)!) as object;
    expect(json).toMatchObject({ output: out(), architecture: "llama", notes: [] });
  });

  test("says which tensors kept F32", async () => {
    const change = (name: string, values: Float32Array): void => {
      if (name === "model.layers.1.self_attn.v_proj.weight") values[3] = -1e6;
    };
    writeFolder(tinyFolder({ change }));
    const terminal = new FakeTerminal();
    expect(await main(["convert", model, out(), "--type", "f16"], terminal)).toBe(0);
    expect(terminal.stderr).toBe(
      "Note: blk.1.attn_v.weight keeps f32: 1 of 2048 values are beyond F16's largest, 65504; the largest is 1.000e+6.\n",
    );
  });

  test("after Ctrl-C leaves nothing, with exit code 130", async () => {
    const terminal = new FakeTerminal();
    terminal.errIsTerminal = true;
    const { err } = terminal;
    terminal.now = () => (terminal.clock += 1000); // every step is drawn
    terminal.err = (text) => {
      err.call(terminal, text);
      if (text.includes("converting")) terminal.pressCtrlC();
    };
    expect(await main(["convert", model, out()], terminal)).toBe(130);
    expect(terminal.stderr).toContain("converting the model was aborted");
    expect(left()).toEqual([]);
  });

  test("with a wrong command line, exit code 2", async () => {
    const terminal = new FakeTerminal();
    expect(await main(["convert", model], terminal)).toBe(2);
    expect(terminal.stderr).toContain("missing required argument 'out.gguf'");
    writeFileSync(out(), jsonFile({}));
    expect(await main(["convert", model, out()], terminal)).toBe(2);
  });
});
