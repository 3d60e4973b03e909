// The command line: builds the program from the table of commands, runs it, and turns errors into one sentence on
// stderr and an exit code (exit-codes.ts).

import { Command, CommanderError } from "commander";
import { detailsOf, LanternError } from "../../src/base/errors.ts";
import type { LogLevel } from "../../src/base/log.ts";
import { defaultModel } from "../../src/catalog/catalog.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import { nodeTerminal, packageVersion, type Terminal } from "../../src/platform/node-cli.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { unexpectedPathError } from "../../src/platform/node-path-errors.ts";
import type { CliCommand, CliContext, CommandBody } from "./command.ts";
import { commands } from "./commands/table.ts";
import { exitCodeOf, exitCodesText, usageExitCode } from "./exit-codes.ts";
import { withOneName } from "./flag-names.ts";
import { addLogLevel, chosenLevel, logLevelOption, terminalLog, terminalWith } from "./logging.ts";
import { noColorHelp, palette, wantsColor } from "./text.ts";

const intro = `A story by ${defaultModel}, computed on this machine. Try next: lantern run -p "The little robot", lantern chat -m tinyllama-chat, lantern --help`;

/** Runs one command line; returns the exit code. */
export async function main(
  args: readonly string[],
  terminal: Terminal = nodeTerminal(),
  downloads: DownloadPlatform = nodeDownloadPlatform(),
): Promise<number> {
  const program = new Command("lantern");
  const context = makeContext(program, terminal, downloads);
  const words = withCommand(withOneName(args));
  try {
    await defineProgram(program, context, terminal, words);
    if (args.length === 0) context.terminal.err(`${context.color().err.dim(intro)}\n\n`);
    await program.parseAsync(words, { from: "user" });
    return context.exitCode;
  } catch (error) {
    return await explain(error, terminal);
  }
}

function makeContext(
  program: Command,
  terminal: Terminal,
  downloads: DownloadPlatform,
): CliContext {
  const color: CliContext["color"] = () => {
    const flag = program.opts<{ color: boolean }>().color !== false;
    const env = (name: string): string | undefined => terminal.env(name);
    return {
      out: palette(wantsColor(terminal.outIsTerminal, env, flag)),
      err: palette(wantsColor(terminal.errIsTerminal, env, flag)),
    };
  };
  const level = () => chosenLevel(program.opts<{ logLevel?: LogLevel }>().logLevel, terminal);
  const log = terminalLog(terminal, level, () => color().err);
  const asked = (text: string): void => terminal.err(text);
  return { terminal: terminalWith(terminal, log), log, asked, downloads, exitCode: 0, color };
}

async function defineProgram(
  program: Command,
  context: CliContext,
  terminal: Terminal,
  words: readonly string[],
): Promise<void> {
  program
    .description("Runs language models on this machine.")
    .version(packageVersion(), "-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    .helpCommand("help [command]", "show help for a command")
    .option("--no-color", noColorHelp)
    .addOption(logLevelOption())
    // Before anything is done: a wrong LANTERN_LOG is an error of usage.
    .hook("preAction", (_, command) => {
      context.log.debug(
        `${command.name()}: Lantern ${packageVersion()}, ${terminal.machine().system}\n`,
      );
    })
    // A subcommand (bench matmul) may have flags of the same name as its parent.
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({
      writeOut: (text) => terminal.out(text),
      writeErr: (text) => terminal.err(text),
      outputError: (text, write) => write(withoutKeys(text.replace(/^error: /, "lantern: "))),
      getOutHelpWidth: () => terminal.columns,
      getErrHelpWidth: () => terminal.columns,
    })
    .showHelpAfterError('"lantern --help" lists the commands.')
    .addHelpText(
      "after",
      helpEnd([
        "lantern                               tells a story",
        'lantern run -p "Once upon a time"     continues a text',
        "lantern chat -m tinyllama-chat        downloads a small chat model and talks with it",
      ]),
    )
    .addHelpText("after", exitCodesText);
  // The first word that is a command's name is the command that runs, or whose help is shown.
  const called = words.find((word) => commands.some(({ name }) => name === word));
  for (const command of commands) {
    const body = command.name === called ? await command.body() : undefined;
    defineCommand(program, command, body, context);
  }
}

/** A command without its body has only the entry that the list of commands shows. */
function defineCommand(
  program: Command,
  command: CliCommand,
  body: CommandBody | undefined,
  context: CliContext,
): void {
  const defined = program
    .command(body || !command.args ? command.name : `${command.name} ${command.args}`)
    .summary(command.summary)
    .description(`${command.summary[0]!.toUpperCase()}${command.summary.slice(1)}.`)
    .option("--no-color", noColorHelp)
    .on("option:no-color", () => program.setOptionValue("color", false))
    .showHelpAfterError(`"lantern ${command.name} --help" shows its flags and examples.`);
  addLogLevel(defined, () => program);
  if (!body) return;
  body.define(defined, context);
  defined.addHelpText("after", helpEnd(body.examples));
}

/** Hides secrets in unknown flags, which commander prints as they were typed: --api-keys=SECRET. */
function withoutKeys(text: string): string {
  return text.replace(/(--[\w-]*key[\w-]*=)[^'\n]*/g, "$1...");
}

function helpEnd(examples: readonly string[]): string {
  return `\nExamples:\n${examples.map((example) => `  ${example}\n`).join("")}`;
}

/** Flags without a command are those of `run`: `lantern -p "..."` and `npm run lantern -- -n 50` work. */
function withCommand(args: readonly string[]): string[] {
  const [first] = args;
  const ofProgram = ["-h", "--help", "-V", "--version"];
  if (first === undefined) return ["run"];
  if (!first.startsWith("-") || ofProgram.includes(first)) return [...args];
  // These may come before a command.
  if (first === "--no-color" || first.startsWith("--log-level=")) {
    return [first, ...withCommand(args.slice(1))];
  }
  if (first === "--log-level") return [...args.slice(0, 2), ...withCommand(args.slice(2))];
  return ["run", ...args];
}

/** Prints the error; returns its exit code. */
async function explain(error: unknown, terminal: Terminal): Promise<number> {
  if (error instanceof CommanderError) {
    return error.exitCode === 0 ? 0 : usageExitCode; // commander has already printed it
  }
  if (error instanceof LanternError) {
    const { inFlags } = await import("../../src/options/names.ts"); // with the table of options
    terminal.err(`lantern: ${inFlags(error.message)}\n`);
    return exitCodeOf(error);
  }
  const ofSystem = unexpectedPathError(error);
  if (ofSystem) {
    terminal.err(`lantern: ${ofSystem.message}\n`);
    return exitCodeOf(ofSystem);
  }
  terminal.err(`lantern: this is a bug in Lantern, please report it:\n${detailsOf(error)}\n`);
  return exitCodeOf(error);
}
