// A text with the origin of its parts: the chat template, in which special tokens count, or people, tools and documents, whose
// words are never special tokens. Plain data, which can be sent between threads and machines as it is. src/chat/ makes it,
// src/tokenizers/ reads it.

/** The parts of a text in which special tokens count: from, to, from, to, ... */
export type Trusted = readonly number[];

/** A text and the template's parts of it. */
export interface RenderedPrompt {
  readonly text: string;
  /**
   * The template's parts: from, to, from, to, ... in UTF-16 units, ascending, no two stretches next to each other. Only there may
   * special tokens be. The rest are the words of people, tools and documents.
   */
  readonly template: Trusted;
}

/** Words of people, tools and documents. */
export function words(text: string): RenderedPrompt {
  return { text, template: [] };
}

/** A text in which special tokens count from the first character to the last. */
export function trusted(text: string): RenderedPrompt {
  return { text, template: text === "" ? [] : [0, text.length] };
}

/** One after the other. */
export function joined(...parts: readonly RenderedPrompt[]): RenderedPrompt {
  const template: number[] = [];
  let at = 0;
  for (const part of parts) {
    for (let i = 0; i < part.template.length; i += 2) {
      const [from, to] = [part.template[i]! + at, part.template[i + 1]! + at];
      if (template.length > 0 && template.at(-1) === from) template[template.length - 1] = to;
      else template.push(from, to);
    }
    at += part.text.length;
  }
  return { text: parts.map(({ text }) => text).join(""), template };
}

/** A stretch of it. */
export function sliced(
  { text, template }: RenderedPrompt,
  from: number,
  to: number,
): RenderedPrompt {
  const kept: number[] = [];
  for (let i = 0; i < template.length; i += 2) {
    const [begin, end] = [Math.max(template[i]!, from), Math.min(template[i + 1]!, to)];
    if (begin < end) kept.push(begin - from, end - from);
  }
  return { text: text.slice(from, to), template: kept };
}

/** The form that is sent to another thread: undefined if it has another shape. */
export function asRendered(value: unknown): RenderedPrompt | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { text, template } = value as Partial<RenderedPrompt>;
  if (typeof text !== "string" || !Array.isArray(template)) return undefined;
  const ends = template as readonly unknown[];
  const isAscending = ends.every(
    (end, i) => Number.isInteger(end) && (end as number) > (i === 0 ? -1 : (ends[i - 1] as number)),
  );
  const isInside = ends.length === 0 || (ends.at(-1) as number) <= text.length;
  return ends.length % 2 === 0 && isAscending && isInside ? { text, template } : undefined;
}
