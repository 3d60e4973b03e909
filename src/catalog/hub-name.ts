// Parses names of models on the Hugging Face hub: "hf:owner/repo", "hf:owner/repo:Q4_K_M", "hf:owner/repo/file.gguf",
// "owner/repo", and URLs copied from a browser. Works on the text only, without network.

import { UsageError } from "../base/errors.ts";

export interface HubName {
  /** "owner/name" */
  repo: string;
  /** Branch, tag or commit. */
  revision: string;
  /** A file of the repository; undefined: one must be chosen. */
  file: string | undefined;
  /** "Q4_K_M", as the user wrote it; undefined if none was named. */
  quantization: string | undefined;
}

const hubHosts = ["huggingface.co", "www.huggingface.co", "hf.co"];
const examples = "hf:owner/repo, hf:owner/repo:Q4_K_M or hf:owner/repo/file.gguf";

/** Parses a name or a URL; undefined if it is no name on the hub. `mirror`: HF_ENDPOINT. */
export function readHubName(text: string, mirror?: string): HubName | undefined {
  const name = text.trim();
  if (/^https?:\/\//i.test(name)) return readAddress(name, mirror);
  if (/^hf:/i.test(name)) return readPath(name.slice(3).replace(/^\/\//, ""), text);
  if (/^(hf\.co|huggingface\.co)\//i.test(name)) {
    return readPath(name.slice(name.indexOf("/") + 1), text);
  }
  return undefined;
}

/** Parses "owner/repo" and "owner/repo:Q4_K_M", which could also be a folder; undefined for anything else. */
export function readBareName(text: string): HubName | undefined {
  const match = /^([\w-][\w.-]*\/[\w-][\w.-]*?)(?::([\w.-]+))?$/.exec(text.trim());
  if (!match || /\.(gguf|bin|safetensors)$/i.test(match[1]!)) return undefined;
  return { repo: match[1]!, revision: "main", file: undefined, quantization: named(match[2]) };
}

/** Whether this is the URL of a file's bytes, which can be opened directly. */
export function isDirectAddress(text: string): boolean {
  return /^https?:\/\/[^/]+\/[^/]+\/[^/]+\/resolve\//i.test(text);
}

const longestName = 1000;

function readPath(path: string, asked: string): HubName {
  if (path.length > longestName) throw wrongName(`${asked.slice(0, 80)}...`);
  const match =
    /^([\w.-]+\/[\w.-]+?)(?:@([\w./-]+?))?(?::([\w.-]+)|\/([\w./ +()-]+))?$/.exec(path) ??
    undefined;
  const [, repo, revision = "main", quantization, file] = (match ?? []) as (string | undefined)[];
  if (repo === undefined || ![repo, revision, file ?? "x"].every(isSafePath)) {
    throw wrongName(asked);
  }
  return { repo, revision, file, quantization: named(quantization) };
}

/** Parses page (repo, tree, blob) and file (resolve) URLs. */
function readAddress(text: string, mirror: string | undefined): HubName | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const hosts = mirror && URL.canParse(mirror) ? [...hubHosts, new URL(mirror).host] : hubHosts;
  if (!url || !hosts.includes(url.host)) return undefined;
  const parts = url.pathname.split("/").filter((part) => part !== "");
  const [owner, repo, kind, revision = "main", ...file] = parts.map(decoded);
  const isFile = kind === "blob" || kind === "resolve";
  const isPage = kind === undefined || kind === "tree";
  if (!owner || !repo || !(isFile || isPage)) throw wrongName(text);
  const [name, quantization] = repo.split(":") as [string, string?];
  const path = isFile ? file.join("/") : undefined;
  if (!/^[\w.-]+$/.test(owner) || !/^[\w.-]+$/.test(name)) throw wrongName(text);
  if (!isSafePath(revision) || (isFile && !isSafePath(path!))) throw wrongName(text);
  return { repo: `${owner}/${name}`, revision, file: path, quantization: named(quantization) };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Ollama's clients append ":latest", which is no quantization. */
function named(quantization: string | undefined): string | undefined {
  return quantization?.toLowerCase() === "latest" ? undefined : quantization;
}

/** A name becomes a path below the cache folder, so no part of it may lead out of it, on any system. */
export function isSafePath(path: string): boolean {
  return path.split("/").every((part) => part !== "." && part !== ".." && safePart.test(part));
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be in it
const safePart = /^[^\\/:*?"<>|\x00-\x1f\x7f-\x9f]{1,255}$/;

function wrongName(asked: string): UsageError {
  return new UsageError(
    `model: "${asked}" does not name a model on the Hugging Face hub, expected ${examples} (for example hf:Qwen/Qwen3-0.6B-GGUF:Q8_0), or the address of its page`,
  );
}

/** "hf:owner/repo", with "@revision" if it is not the default one. */
export function hubFolder({ repo, revision }: Pick<HubName, "repo" | "revision">): string {
  return revision === "main" ? repo : `${repo}@${revision}`;
}
