// Markdown as it comes: one component per block, so that finished blocks are left alone while the last ones grow.

import type { ComponentChildren, JSX } from "preact";
import { useRef } from "preact/hooks";
import { type Block, MarkdownBlocks } from "../state/blocks.ts";
import { CopyButton } from "./copy-button.tsx";
import { memo } from "./memo.ts";

export function Markdown({ text }: { text: string }): JSX.Element {
  const blocks = useRef<MarkdownBlocks>(undefined);
  blocks.current ??= new MarkdownBlocks();
  return (
    <div class="markdown">
      {blocks.current.update(text).map((block) => (
        <BlockView key={block.key} block={block} />
      ))}
    </div>
  );
}

const BlockView = memo(
  ({ block }: { block: Block }): ComponentChildren =>
    block.code ? (
      <CodeBlock text={block.code.text} language={block.code.language} />
    ) : (
      // sanitize.ts made it harmless.
      <div
        class={block.continued ? "block continued" : "block"}
        dangerouslySetInnerHTML={{ __html: block.html }}
      />
    ),
  (a, b) =>
    a.block.html === b.block.html &&
    a.block.continued === b.block.continued &&
    a.block.code?.text === b.block.code?.text &&
    a.block.code?.language === b.block.code?.language,
);

function CodeBlock({ text, language }: { text: string; language: string }): JSX.Element {
  return (
    <figure class="code">
      <figcaption>
        <span>{language === "" ? "text" : language}</span>
        <CopyButton text={text} label="Copy code" />
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long lines are scrolled with the keyboard, too */}
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </figure>
  );
}
