// The result of an MCP tool as text for a model, which reads text only: other content is named, not shown.

import { show } from "../../src/base/show.ts";

export interface ToolResult {
  readonly text: string;
  /** The tool says that it failed. */
  readonly isError: boolean;
}

type Part = Readonly<Record<string, unknown>>;

export function resultOf(result: unknown): ToolResult {
  const { content, structuredContent, isError } = (result ?? {}) as Part;
  const parts = Array.isArray(content) ? (content as Part[]) : [];
  const texts = parts.map(partText);
  // Servers repeat structured content as text, as the protocol asks them to; if one does not, it is the result.
  if (texts.length === 0 && structuredContent !== undefined) {
    texts.push(JSON.stringify(structuredContent));
  }
  return { text: texts.join("\n"), isError: isError === true };
}

function partText(part: Part): string {
  const { type, text, data, mimeType, uri, resource } = part;
  if (type === "text" && typeof text === "string") return text;
  const inner = (resource ?? {}) as Part;
  if (type === "resource" && typeof inner.text === "string") return inner.text;
  if (type === "resource_link") return `[a link to ${show(uri)}]`;
  const size = typeof data === "string" ? `, ${Math.floor(data.length * 0.75)} bytes` : "";
  const kind = typeof mimeType === "string" ? `, ${mimeType.slice(0, 60)}` : "";
  return `[${show(type)}${kind}${size}: only text can be read]`;
}
