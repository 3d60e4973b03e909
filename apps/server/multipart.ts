// Reads multipart/form-data as it arrives: short fields are kept as text, and the bytes of a file go to a sink, so that an
// upload of any size needs little memory. Parts are in the order of the client.

import { invalidRequest } from "./errors.ts";

/** Takes the bytes of a file part, in pieces. */
export interface PartSink {
  write(bytes: Uint8Array): Promise<void>;
}

export interface MultipartOptions {
  /** Called at the start of a file. */
  onFile(part: { field: string; name: string }): Promise<PartSink>;
}

/** The number of parts of any kind: a form has a handful. */
const mostParts = 32;
const mostFieldBytes = 65_536;
const mostHeaderBytes = 16_384;

const crlf = "\r\n";

/** The fields by name; files went to the sinks. */
export async function readMultipart(
  request: Request,
  { onFile }: MultipartOptions,
): Promise<Map<string, string>> {
  const type = request.headers.get("content-type") ?? "";
  const [kind, ...parameters] = type.split(";").map((part) => part.trim());
  const boundary = parameters
    .map((part) => /^boundary=(?:"([^"]{1,200})"|(\S{1,200}))/i.exec(part))
    .find((found) => found !== null);
  if (kind!.toLowerCase() !== "multipart/form-data" || !boundary) {
    throw invalidRequest(
      `the content type is ${JSON.stringify(type.slice(0, 100))}, expected multipart/form-data with a boundary`,
    );
  }
  const mark = (boundary[1] ?? boundary[2])!;
  const bytes = new PartBytes(request.body);
  const fields = new Map<string, string>();
  try {
    await bytes.until(`--${mark}`, undefined, mostHeaderBytes); // bytes before the first part are dropped
    for (let parts = 0; ; parts++) {
      const line = await bytes.text(crlf, mostHeaderBytes);
      if (line.startsWith("--")) return fields; // the end
      if (parts === mostParts) throw invalidRequest(`the form has more than ${mostParts} parts`);
      const { field, name } = partOf(await bytes.text(crlf + crlf, mostHeaderBytes));
      if (name === undefined) {
        fields.set(field, await bytes.text(`${crlf}--${mark}`, mostFieldBytes));
      } else {
        await bytes.until(`${crlf}--${mark}`, await onFile({ field, name }), Infinity);
      }
    }
  } catch (error) {
    bytes.cancel();
    throw error;
  }
}

/** name="purpose"; filename="a.jsonl" */
function partOf(head: string): { field: string; name: string | undefined } {
  const line = head
    .split(crlf)
    .find((each) => each.toLowerCase().startsWith("content-disposition:"));
  const value = (key: string): string | undefined =>
    new RegExp(`[;\\s]${key}="((?:[^"\\\\]|\\\\.)*)"`, "i").exec(line ?? "")?.[1];
  const field = value("name");
  if (field === undefined) throw invalidRequest("a part of the form has no name");
  return { field, name: value("filename") };
}

/** The bytes of a body, divided at marks. */
class PartBytes {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #held: Uint8Array = new Uint8Array(0);

  constructor(body: ReadableStream<Uint8Array> | null) {
    this.#reader = body?.getReader();
  }

  cancel(): void {
    this.#reader?.cancel().catch(() => {});
  }

  /** The text before a mark, which is taken too. */
  async text(mark: string, most: number): Promise<string> {
    const parts: Uint8Array[] = [];
    await this.until(mark, { write: async (bytes) => void parts.push(bytes.slice()) }, most);
    const decoder = new TextDecoder();
    const text = parts.map((part) => decoder.decode(part, { stream: true })).join("");
    return text + decoder.decode();
  }

  /** Passes on the bytes before a mark, and takes the mark. */
  async until(mark: string, sink: PartSink | undefined, most: number): Promise<void> {
    const wanted = new TextEncoder().encode(mark);
    let seen = 0;
    const hand = async (count: number): Promise<void> => {
      seen += count;
      if (seen > most) throw invalidRequest(`a part of the form has more than ${most} bytes`);
      if (count > 0) await sink?.write(this.#held.subarray(0, count));
      this.#held = this.#held.subarray(count);
    };
    for (;;) {
      const at = indexOf(this.#held, wanted);
      if (at >= 0) {
        await hand(at);
        this.#held = this.#held.subarray(wanted.length);
        return;
      }
      // The mark may be cut in two: a possible beginning of it stays.
      await hand(Math.max(0, this.#held.length - wanted.length + 1));
      await this.#more();
    }
  }

  async #more(): Promise<void> {
    const next = await this.#reader?.read();
    if (!next || next.done) {
      throw invalidRequest("the form ends before its last boundary: the upload was cut off");
    }
    const all = new Uint8Array(this.#held.length + next.value.length);
    all.set(this.#held);
    all.set(next.value, this.#held.length);
    this.#held = all;
  }
}

function indexOf(bytes: Uint8Array, wanted: Uint8Array): number {
  const last = bytes.length - wanted.length;
  for (let at = bytes.indexOf(wanted[0]!); at >= 0 && at <= last; ) {
    let same = 1;
    while (same < wanted.length && bytes[at + same] === wanted[same]) same++;
    if (same === wanted.length) return at;
    at = bytes.indexOf(wanted[0]!, at + 1);
  }
  return -1;
}
