// A copy of the sources in a temporary folder, to which the code of a document is added as the document says: new files from
// its ```ts blocks, changes from its ```diff blocks. The compiler and the tests then run on the copy.

import { execFileSync } from "node:child_process";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));
const folders = ["test/tiers", "src", "test/conformance", "test/support", "test/kernels"];

/** Besides src; one that is not there yet is no error. */
const compiled = ["table", "targets", "counting.test"].map((name) => `test/conformance/${name}.ts`);

/** A part of a document: a new file, or lines that are added to one. */
export interface Addition {
  readonly path: string;
  apply(before: string | undefined): string;
}

/** The additions of a document, in order. A ```ts block is the file that the paragraph before it names first. */
export function additionsOf(document: string): Addition[] {
  const text = readFileSync(join(root, document), "utf8");
  const additions: Addition[] = [];
  for (const { index, 1: kind, 2: code } of text.matchAll(/```(ts|diff)\n([\s\S]*?)```/g)) {
    if (kind === "diff") additions.push(change(document, code!));
    else {
      const paragraph = text.slice(0, index).trimEnd().split("\n\n").at(-1)!;
      const path = /`((?:src|test)\/[\w./-]+\.ts)`/.exec(paragraph)![1]!;
      additions.push({ path, apply: () => code! });
    }
  }
  return additions;
}

/** `--- path`, lines that are there (once, behind each other), - lines that go and + lines that are new. */
function change(document: string, block: string): Addition {
  const [header, ...lines] = block.trimEnd().split("\n");
  const path = header!.replace("--- ", "");
  const old = lines.filter((line) => !line.startsWith("+"));
  const before = old.map((line) => line.slice(1)).join("\n");
  const kept = lines.filter((line) => !line.startsWith("-"));
  const after = kept.map((line) => line.slice(1)).join("\n");
  return {
    path,
    apply: (text) => {
      const places = (text ?? "").split(before).length - 1;
      if (places === 1) return text!.replace(before, () => after);
      throw new Error(`${document}: ${path} has ${places} times, expected once:\n${before}`);
    },
  };
}

/** "The import, and the name in the list `builtIn`": what the documents of types and architectures say of their tables. */
export function listed(table: string, file: string, name: string): Addition {
  return {
    path: table,
    apply: (text) => {
      const lists = (text ?? "").split(/(?=\n\];|(?<=\w)\];)/).length - 1;
      if (lists !== 1) throw new Error(`${table}: ${lists} lists, expected one`);
      const withName = text!.replace(/,?(\n?)\];/, (_, line: string) => `, ${name}${line}];`);
      return withName.replace(/^import /m, `import { ${name} } from "${file}";\nimport `);
    },
  };
}

export class Overlay {
  readonly folder: string = mkdtempSync(join(tmpdir(), "lantern-overlay-"));

  /** @param more Further folders and files of the project. */
  constructor(more: readonly string[] = []) {
    for (const folder of [...folders, ...more]) {
      cpSync(join(root, folder), join(this.folder, folder), { recursive: true });
    }
    for (const file of ["package.json", "tsconfig.json", "vitest.config.ts"]) {
      cpSync(join(root, file), join(this.folder, file));
    }
    symlinkSync(join(root, "node_modules"), join(this.folder, "node_modules"), "junction");
  }

  /** The files that were made or changed, each once, in the order of the additions. */
  add(additions: readonly Addition[]): string[] {
    for (const { path, apply } of additions) {
      const file = join(this.folder, path);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, apply(readIfThere(file)));
    }
    return [...new Set(additions.map(({ path }) => path))];
  }

  /** What the compiler says of src and the conformance table, or of what is included instead; "": nothing. */
  compile(include: readonly string[] = ["src", ...compiled]): string {
    const config = { extends: "./tsconfig.json", include };
    writeFileSync(join(this.folder, "tsconfig.overlay.json"), JSON.stringify(config));
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    return this.#run([tsc, "-p", "tsconfig.overlay.json"]);
  }

  /** Runs tests of the copy whose names contain one of these; the numbers that passed and failed, and what was said. */
  test(files: readonly string[], names: readonly string[]): TestOutcome {
    const vitest = join(root, "node_modules/vitest/vitest.mjs");
    const report = join(this.folder, "report.json");
    const filter = ["-t", `(${names.join("|")})$`];
    const reporters = ["--reporter=json", `--outputFile.json=${report}`];
    const said = this.#run([
      vitest,
      "run",
      "--root",
      this.folder,
      ...reporters,
      ...filter,
      ...files,
    ]);
    const json = readIfThere(report);
    if (json === undefined) throw new Error(said);
    const {
      numPassedTests: passed,
      numFailedTests: failed,
      testResults,
    } = JSON.parse(json) as {
      numPassedTests: number;
      numFailedTests: number;
      testResults: { message: string; assertionResults: { failureMessages: string[] }[] }[];
    };
    const messages = testResults.flatMap(({ message, assertionResults }) => [
      message,
      ...assertionResults.flatMap(({ failureMessages }) => failureMessages),
    ]);
    return { passed, failed, messages: messages.filter((message) => message !== "") };
  }

  /** What a program printed, whether it failed or not. */
  #run(args: readonly string[]): string {
    try {
      const options = { cwd: this.folder, encoding: "utf8", stdio: "pipe" } as const;
      // What tests usually leave out may be what was added; and threads run the copy's sources, of which there is no bundle.
      const env = { ...process.env, LANTERN_TEST_ALL: "1", LANTERN_TEST_THREADS: "" };
      return execFileSync(process.execPath, args, { ...options, env, maxBuffer: 1 << 26 });
    } catch (error) {
      const { stdout, stderr } = error as { stdout: string; stderr: string };
      return `${stdout}${stderr}`;
    }
  }

  /** What a program of the copy prints. */
  program(code: string): string {
    const file = join(this.folder, "program.ts");
    writeFileSync(file, code);
    return this.#run([file]);
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

export interface TestOutcome {
  readonly passed: number;
  readonly failed: number;
  readonly messages: readonly string[];
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}
