// An empty project somewhere else that installs Lantern from its tarball, as a user would: what package.test.ts looks at.
//
// `npm pack` runs for real (prepack builds dist/), and npm installs the tarball with its dependencies, from its cache or
// the registry. Where neither has them, the tarball is unpacked beside the dependencies of this checkout instead.

import { execFile } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

export const checkout: string = fileURLToPath(new URL("../../", import.meta.url));

const run = promisify(execFile);

/** What npm says when it cannot reach a registry: then there is nothing to install from, and nothing wrong with us. */
const noRegistry =
  /ENOTFOUND|ECONNREFUSED|ECONNRESET|EAI_AGAIN|ETIMEDOUT|ENOTCACHED|ERR_SOCKET_TIMEOUT|ENETUNREACH|network/;

export interface Output {
  stdout: string;
  stderr: string;
}

export interface Install {
  /** Why npm did not install it, if it did not. */
  byHand: string | undefined;
  warnings: readonly string[];
}

export class Consumer {
  readonly folder: string;
  /** Bytes of the tarball. */
  readonly packedSize: number;
  /** What npm said while it installed it; a reason where it could not. */
  readonly install: Install;

  private constructor(folder: string, packedSize: number, install: Install) {
    this.folder = folder;
    this.packedSize = packedSize;
    this.install = install;
  }

  static async create(): Promise<Consumer> {
    const folder = mkdtempSync(join(tmpdir(), "lantern-consumer-"));
    try {
      rmSync(join(checkout, "dist"), { recursive: true, force: true }); // no file of an older build
      await command(checkout, "npm", ["pack", "--pack-destination", folder]);
      const tarball = join(folder, readdirSync(folder).find((file) => file.endsWith(".tgz"))!);
      const manifest = { name: "consumer", private: true, type: "module" };
      writeFileSync(join(folder, "package.json"), JSON.stringify(manifest));
      return new Consumer(folder, statSync(tarball).size, await install(folder, tarball));
    } catch (error) {
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
  }

  /** What the package put into node_modules/lantern: sorted, with forward slashes. */
  files(): { path: string; bytes: number }[] {
    const installed = join(this.folder, "node_modules", "lantern");
    return readdirSync(installed, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
      .filter((path) => !path.slice(installed.length).includes("node_modules"))
      .map((path) => ({
        path: path.slice(installed.length + 1).replaceAll("\\", "/"),
        bytes: statSync(path).size,
      }))
      .sort((a, b) => (a.path < b.path ? -1 : 1));
  }

  write(file: string, text: string): void {
    writeFileSync(join(this.folder, file), text);
  }

  /** Runs a command in the project; returns its standard output. */
  async run(program: string, ...args: string[]): Promise<string> {
    return (await command(this.folder, program, args)).stdout;
  }

  /** The same with other variables, and what went to standard error. */
  runWith(env: NodeJS.ProcessEnv, program: string, ...args: string[]): Promise<Output> {
    return command(this.folder, program, args, env);
  }

  dispose(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

async function install(folder: string, tarball: string): Promise<Install> {
  const quiet = ["--no-audit", "--no-fund", "--prefer-offline"];
  const patience = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=30000"];
  try {
    const { stderr } = await command(folder, "npm", ["install", ...quiet, ...patience, tarball]);
    return { byHand: undefined, warnings: warningsIn(stderr) };
  } catch (error) {
    const said = String(error);
    if (!noRegistry.test(said)) throw error;
    await unpack(folder, tarball);
    return { byHand: noRegistry.exec(said)![0], warnings: [] };
  }
}

/** npm also warns of settings of this machine's that it does not know; those are not about us. */
function warningsIn(stderr: string): string[] {
  const lines = stderr.split("\n").filter((line) => /\bwarn/i.test(line));
  return lines.filter((line) => !/Unknown \w+ config/.test(line));
}

async function unpack(folder: string, tarball: string): Promise<void> {
  const modules = join(folder, "node_modules");
  rmSync(modules, { recursive: true, force: true });
  mkdirSync(join(modules, "lantern"), { recursive: true });
  mkdirSync(join(modules, ".bin"));
  const target = join(modules, "lantern");
  await command(folder, "tar", ["-xzf", tarball, "-C", target, "--strip-components=1"]);
  for (const name of ["@hono", "@huggingface", "commander", "hono", "zod"]) {
    symlinkSync(join(checkout, "node_modules", name), join(modules, name), "junction");
  }
  symlinkSync("../lantern/bin/lantern.js", join(modules, ".bin", "lantern"));
}

async function command(
  cwd: string,
  program: string,
  args: readonly string[],
  changes: NodeJS.ProcessEnv = {},
): Promise<Output> {
  const bin = join(checkout, "node_modules", ".bin"); // Node 26 and tsc
  // npm tells its scripts about the project they run in; another npm in another project must not hear it.
  const own = /^npm_(package|lifecycle|config_local_prefix|config_omit|config_prefix)/;
  const inherited = Object.entries(process.env).filter(([name]) => !own.test(name));
  const path = bin + delimiter + process.env.PATH;
  const env = { ...Object.fromEntries(inherited), PATH: path, ...changes };
  try {
    const shell = process.platform === "win32"; // npm is a .cmd file there
    return await run(program, args, { cwd, env, shell, maxBuffer: 64 << 20 });
  } catch (error) {
    const { stdout, stderr } = error as Partial<Output>;
    throw new Error(`${program} ${args.join(" ")} failed:\n${error}\n${stdout}\n${stderr}`);
  }
}
