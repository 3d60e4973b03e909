// llama-server's flags for where a model comes from: the Hugging Face hub, a URL, with a token, without a network. They become names
// for -m and --model-draft; and its flags for where a model is computed and what is said, as far as ours say the same.

import type { Command } from "commander";
import type { LogLevel } from "../../src/base/log.ts";
import { SourceError, UsageError } from "../../src/index.ts";
import type { CliContext } from "./command.ts";
import { numberFlag, onceFlag } from "./flag-values.ts";

export interface ModelSourceFlags {
  hfRepo?: string;
  hfFile?: string;
  hfToken?: string;
  hfRepoDraft?: string;
  modelUrl?: string;
  offline?: boolean;
  device?: string;
  verbosity?: number;
}

export function addModelSourceFlags(command: Command): Command {
  return command
    .option(
      "--hf-repo <owner/repo>",
      "a model of the Hugging Face hub, as -m hf:OWNER/REPO[:TYPE] (also: -hf)",
      onceFlag,
    )
    .option("--hf-file <name>", "the file of that repository (also: -hff)", onceFlag)
    .option(
      "--hf-token <token>",
      "token for the hub; other users of this machine can see flags, so HF_TOKEN is safer (also: -hft)",
      onceFlag,
    )
    .option("--hf-repo-draft <owner/repo>", "the same for --model-draft (also: -hfd)", onceFlag)
    .option("--model-url <url>", "the address of a model's file, as -m URL (also: -mu)", onceFlag)
    .option("--offline", "download nothing: use models that are on this machine")
    .option(
      "--device <name>",
      "none: compute on the processor alone, as -ngl 0; another name is that of the GPU which is used anyway",
      onceFlag,
    )
    .option(
      "--verbosity <n>",
      "llama-server's levels of what is said; 0 and 1: error, 2: warn, 3: info, 4 and more: debug (also: -lv)",
      numberFlag({ integer: true, min: 0 }),
    )
    .on("option:verbosity", (text: string) => {
      const level = levels[Math.min(Number(text), levels.length - 1)];
      command.parent?.setOptionValue("logLevel", level);
    });
}

/** By llama-server's numbers. */
const levels: readonly LogLevel[] = ["error", "error", "warn", "info", "debug"];

interface Named {
  model?: string[];
  modelDraft?: string;
  gpuLayers?: number | "all" | "auto";
}

/** The flags that these say, where they were given. */
export function namedSources(flags: ModelSourceFlags & Named): Named {
  const { hfRepo, hfFile, hfRepoDraft, modelUrl, device } = flags;
  if (hfFile !== undefined && hfRepo === undefined) {
    throw new UsageError(
      "flags: got --hf-file without --hf-repo, expected both. Add the repository that has the file",
    );
  }
  const more = [
    ...(hfRepo === undefined ? [] : [hubName("--hf-repo", hfRepo, hfFile)]),
    ...(modelUrl === undefined ? [] : [modelUrl]),
  ];
  if (hfRepoDraft !== undefined && flags.modelDraft !== undefined) {
    throw new UsageError(
      "flags: got both --model-draft and --hf-repo-draft, expected one of them. Drop one",
    );
  }
  return {
    ...(more.length > 0 && { model: [...(flags.model ?? []), ...more] }),
    ...(hfRepoDraft !== undefined && { modelDraft: hubName("--hf-repo-draft", hfRepoDraft) }),
    ...(device === "none" && { gpuLayers: 0 }),
  };
}

/** A file takes the place of a type. */
function hubName(flag: string, repo: string, file?: string): string {
  const match = /^([\w.-]+\/[\w.-]+)(:[\w.-]+)?$/.exec(repo);
  if (!match) {
    throw new UsageError(
      `${flag}: got ${JSON.stringify(repo)}, expected OWNER/REPO or OWNER/REPO:TYPE, as in ggml-org/gemma-3-1b-it-GGUF:Q4_K_M`,
    );
  }
  return `hf:${match[1]}${file === undefined ? (match[2] ?? "") : `/${file}`}`;
}

/** The context with the token, and without a network. */
export function withSources(context: CliContext, flags: ModelSourceFlags): CliContext {
  const { hfToken, offline } = flags;
  if (hfToken === undefined && !offline) return context;
  const { downloads } = context;
  const refuse = async (): Promise<never> => {
    throw new SourceError(
      "model: it is not on this machine, and --offline downloads nothing. Leave the flag out, or name a model that is here",
    );
  };
  return {
    ...context,
    downloads: new Proxy(downloads, {
      get: (target, name) => {
        if (name === "fetch" && offline) return refuse;
        if (name === "env" && hfToken !== undefined) {
          return (variable: string) => (variable === "HF_TOKEN" ? hfToken : target.env(variable));
        }
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === "function" ? (value.bind(target) as unknown) : value;
      },
    }),
  };
}
