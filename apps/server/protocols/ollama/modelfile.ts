// Ollama's Modelfile: FROM, ADAPTER, PARAMETER, SYSTEM, TEMPLATE and LICENSE, one instruction a line; a text may be in quotes, or over several
// lines in triple quotes. Only names of models may stand after FROM, and digests of uploaded files after ADAPTER, never paths.

import { byName } from "../../../../src/base/by-name.ts";
import { generationRows } from "../../../../src/options/generation.ts";
import type { OptionRow } from "../../../../src/options/row.ts";
import { samplingRows } from "../../../../src/options/sampling.ts";
import { invalidRequest, unsupportedField } from "../../errors.ts";
import type { ModelPreset } from "../../models/on-demand.ts";

export interface Modelfile {
  from?: string;
  system?: string;
  template?: string;
  /** Digests: "sha256:...". */
  adapters: string[];
  parameters: Record<string, unknown>;
}

/** Instructions that a created model cannot have here. */
const refused: readonly string[] = ["MESSAGE"];

export function parseModelfile(text: string): Modelfile {
  const file: Modelfile = { adapters: [], parameters: {} };
  const lines = text.split(/\r?\n/);
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at]!.trim();
    if (line === "" || line.startsWith("#")) continue;
    const [, word = "", rest = ""] = /^(\S+)\s*(.*)$/.exec(line)!;
    const instruction = word.toUpperCase();
    const where = `modelfile: line ${at + 1}`;
    let value = rest;
    if (rest.startsWith('"""')) {
      const first = at;
      const pieces = [rest.slice(3)];
      while (!pieces.at(-1)!.includes('"""')) {
        const next = lines[++at];
        if (next === undefined) {
          throw invalidRequest(
            `modelfile: the text that begins in line ${first + 1} has no closing """`,
            "modelfile",
          );
        }
        pieces.push(next);
      }
      value = pieces.join("\n").replace(/"""[\s\S]*$/, "");
    } else if (/^".*"$/.test(rest) && rest.length > 1) value = rest.slice(1, -1);
    apply(file, instruction, value, where);
  }
  if (file.from === undefined)
    throw invalidRequest("modelfile: it has no FROM, expected the name of a model", "modelfile");
  return file;
}

function apply(file: Modelfile, instruction: string, value: string, where: string): void {
  if (refused.includes(instruction)) {
    throw unsupportedField(
      "modelfile",
      `${where}: ${instruction}: a created model has no messages of its own`,
    );
  }
  const need = (): string => {
    if (value.trim() !== "") return value;
    throw invalidRequest(`${where}: ${instruction} has no value`, "modelfile");
  };
  const set: Readonly<Record<string, () => void>> = {
    FROM: () => {
      file.from = need();
    },
    ADAPTER: () => void file.adapters.push(digestOf(need(), where)),
    SYSTEM: () => {
      file.system = value;
    },
    TEMPLATE: () => {
      file.template = need();
    },
    LICENSE: () => {},
    PARAMETER: () => addParameter(file, need(), where),
  };
  if (!Object.hasOwn(set, instruction)) {
    const known = [...Object.keys(set), ...refused].join(", ");
    throw invalidRequest(
      `${where}: got ${JSON.stringify(instruction.slice(0, 40))}, expected one of ${known}`,
      "modelfile",
    );
  }
  set[instruction]!();
}

/** "@sha256:..." as well, as Ollama's client writes it. */
function digestOf(value: string, where: string): string {
  const digest = value.trim().replace(/^@/, "");
  if (/^sha256:[0-9a-f]{64}$/.test(digest)) return digest;
  throw invalidRequest(
    `${where}: ADAPTER: got ${JSON.stringify(value.slice(0, 80))}, expected the digest of an uploaded file, "sha256:" and 64 digits; requests never name paths. "ollama create" uploads the file, or upload it with POST /api/blobs/sha256:...`,
    "modelfile",
  );
}

/** Numbers and booleans are read as such; `stop` may be given several times. */
function addParameter({ parameters }: Modelfile, text: string, where: string): void {
  const [, name = "", raw = ""] = /^(\S+)\s*([\s\S]*)$/.exec(text.trim()) ?? [];
  const quoted = /^"([\s\S]*)"$/.exec(raw)?.[1];
  if (raw === "" || !/^\w{1,60}$/.test(name)) {
    throw invalidRequest(
      `${where}: expected PARAMETER name value, as in PARAMETER temperature 0.7`,
      "modelfile",
    );
  }
  if (name === "stop") {
    const before = Object.hasOwn(parameters, name) ? (parameters[name] as string[]) : [];
    parameters[name] = [...before, quoted ?? raw];
    return;
  }
  const isWord = raw === "true" || raw === "false";
  const number = Number(raw);
  parameters[name] = quoted ?? (isWord ? raw === "true" : Number.isFinite(number) ? number : raw);
}

/** Ollama's names of the options that a preset may have. */
const parameterNames: Readonly<Record<string, string | undefined>> = byName(
  Object.fromEntries(
    Object.entries<OptionRow>({ ...generationRows, ...samplingRows }).map(([name, row]) => [
      name,
      row.ollama ?? row.field,
    ]),
  ),
);

function parametersOf({ sampling = {} }: ModelPreset): [string, unknown][] {
  return Object.entries(sampling).flatMap(([option, value]): [string, unknown][] => {
    const name = parameterNames[option];
    return name === undefined ? [] : [[name, value]];
  });
}

function parameterLines({ preset = {}, parameters }: Described): string[] {
  const named = parameters ? Object.entries(parameters) : parametersOf(preset);
  return named.flatMap(([name, value]) => {
    const all: unknown[] = Array.isArray(value) ? value : [value];
    return all.map(
      (one) => `${name} ${typeof one === "string" ? JSON.stringify(one) : String(one)}`,
    );
  });
}

/** The prompt settings of a model. */
interface Described {
  readonly preset?: ModelPreset | undefined;
  /** The given values, if it was made with them. */
  readonly parameters?: Readonly<Record<string, unknown>> | undefined;
  readonly template?: string | undefined;
  readonly adapters?: readonly string[] | undefined;
}

/** The format of /api/show. */
export function parametersText(described: Described): string {
  return parameterLines(described).join("\n");
}

/** The Modelfile that would make the same model. */
export function modelfileText(from: string, described: Described): string {
  const { template, preset, adapters = [] } = described;
  const own = adapters.map((digest) => `ADAPTER ${digest}\n`).join("");
  const text = template === undefined ? "" : `TEMPLATE """${template}"""\n`;
  const system = preset?.system === undefined ? "" : `SYSTEM """${preset.system}"""\n`;
  const parameters = parameterLines(described).map((line) => `PARAMETER ${line}\n`);
  return `FROM ${from}\n${own}${text}${system}${parameters.join("")}`;
}
