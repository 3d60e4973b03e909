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

const fenced = /(?:^|\n\n)File: ([^\n]+)\n(`{3,})\n([\s\S]*?)\n\2(?=$|\n\nFile: )/g;

/** The reverse: the typed text and the attached files. */
export function splitAttachments(content: string): { text: string; files: Attachment[] } {
  const found = [...content.matchAll(fenced)];
  const last = found.at(-1);
  // Attachments are at the end; a fence in the middle is part of the text.
  if (!last || last.index + last[0].length !== content.length) return { text: content, files: [] };
  return {
    text: content.slice(0, found[0]!.index),
    files: found.map(([, name, , text]) => ({ name: name!, text: text! })),
  };
}

function longestRun(text: string): number {
  return Math.max(0, ...(text.match(/`+/g) ?? []).map((run) => run.length));
}
