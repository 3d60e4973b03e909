// Text files attached to a message. They are part of its text, each in a code fence under its name, so that any model
// can read them and an export contains them; the page shows them folded.

export interface Attachment {
  name: string;
  text: string;
}

const mostBytes = 512 * 1024;

/** A file as text, or a sentence why it is not text. */
export async function readAttachment(file: File): Promise<Attachment | string> {
  if (file.size > mostBytes) return `${file.name} is larger than 512 kB. Attach a part of it.`;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (text.includes("\0")) return `${file.name} is not a text file.`;
    if (text.trim() === "") return `${file.name} is empty.`;
    return { name: file.name.replaceAll(/\s+/g, " "), text: text.replaceAll("\r\n", "\n") };
  } catch {
    return `${file.name} is not a text file.`;
  }
}

/** The message to send. */
export function withAttachments(text: string, files: readonly Attachment[]): string {
  const fenced = files.map(({ name, text: content }) => {
    const fence = "`".repeat(Math.max(3, longestRun(content) + 1));
    return `File: ${name}\n${fence}\n${content.replace(/\n$/, "")}\n${fence}`;
  });
  return [text, ...fenced].filter((part) => part !== "").join("\n\n");
}

const between = "\n\n";
const heading = "File: ";

/** The reverse: the typed text and the attached files. They are at the end; a fence in the middle is part of the text. */
export function splitAttachments(content: string): { text: string; files: Attachment[] } {
  /** The next position of each kind of fence: it is not searched again from every heading. */
  const fences = new Map<string, number>();
  let files: Attachment[] = [];
  let textEnd = 0;
  let at = content.startsWith(heading) ? 0 : after(content, 0);
  while (at >= 0) {
    if (files.length === 0) textEnd = Math.max(0, at - between.length);
    const found = fileAt(content, at, fences);
    if (!found) {
      files = [];
      at = after(content, at);
      continue;
    }
    files.push(found.file);
    if (found.end === content.length) return { text: content.slice(0, textEnd), files };
    at = found.end + between.length;
  }
  return { text: content, files: [] };
}

/** The position of the next heading; -1: none. */
function after(content: string, from: number): number {
  const at = content.indexOf(between + heading, from);
  return at < 0 ? at : at + between.length;
}

/** The file whose heading is here, and the end of its fence: at the text's end, or before another heading. */
function fileAt(
  content: string,
  at: number,
  fences: Map<string, number>,
): { file: Attachment; end: number } | undefined {
  const nameEnd = content.indexOf("\n", at);
  const fenceEnd = content.indexOf("\n", nameEnd + 1);
  if (nameEnd <= at + heading.length || fenceEnd < 0) return undefined;
  const fence = content.slice(nameEnd + 1, fenceEnd);
  if (!/^`{3,}$/.test(fence)) return undefined;
  // No text of a file has a fence as long as its own.
  const last = `\n${fence}`;
  let close = fences.get(fence) ?? 0;
  if (close >= 0 && close <= fenceEnd) close = content.indexOf(last, fenceEnd + 1);
  fences.set(fence, close);
  const end = close + last.length;
  const isLast = end === content.length || content.startsWith(between + heading, end);
  if (close < 0 || !isLast) return undefined;
  const name = content.slice(at + heading.length, nameEnd);
  return { file: { name, text: content.slice(fenceEnd + 1, close) }, end };
}

function longestRun(text: string): number {
  return Math.max(0, ...(text.match(/`+/g) ?? []).map((run) => run.length));
}
