// Streaming Markdown: one component per block, so that finished blocks are not rendered again while the last ones
// grow. Code is highlighted when its fence is closed; formulas are rendered once KaTeX is loaded.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Block, MarkdownBlocks } from "../state/blocks.ts";
import { highlighted, wantHighlighter } from "../state/highlight.ts";
import { mathReady } from "../state/math.ts";
import { useStore } from "../state/store.ts";
import { policy } from "../state/trusted.ts";
import { CopyButton } from "./copy-button.tsx";
import { memo } from "./memo.ts";

/** `growing`: more text may come. */
export function Markdown({ text, growing }: { text: string; growing: boolean }): JSX.Element {
  const isMathReady = useStore(mathReady);
  const blocks = useRef<{ made: MarkdownBlocks; withMath: boolean }>(undefined);
  if (!blocks.current || (blocks.current.withMath !== isMathReady && blocks.current.made.hasMath)) {
    blocks.current = { made: new MarkdownBlocks(), withMath: isMathReady };
  }
  return (
    <div class="markdown">
      {blocks.current.made.update(text).map((block) => (
        <BlockView key={block.key} block={block} growing={growing} />
      ))}
    </div>
  );
}

const BlockView = memo(
  ({ block, growing }: { block: Block; growing: boolean }): ComponentChildren =>
    block.code ? (
      <CodeBlock {...block.code} growing={growing} />
    ) : (
      <Html of="div" class={block.continued ? "block continued" : "block"} html={block.html} />
    ),
  (a, b) =>
    a.block.html === b.block.html &&
    a.block.continued === b.block.continued &&
    a.block.code?.text === b.block.code?.text &&
    a.block.code?.closed === b.block.code?.closed &&
    a.block.code?.language === b.block.code?.language &&
    (a.growing === b.growing || !a.block.code),
);

interface HtmlProps {
  of: "div" | "code";
  class?: string;
  /** From sanitize.ts. */
  html: string;
}

/** The same object for the same text: otherwise its nodes are replaced, and the selection is lost. */
function Html({ of: Tag, html, ...rest }: HtmlProps): JSX.Element {
  const inner = useMemo(() => ({ __html: policy.createHTML(html) }), [html]);
  return <Tag {...rest} dangerouslySetInnerHTML={inner} />;
}

interface CodeProps {
  text: string;
  language: string;
  closed: boolean;
  growing: boolean;
}

function CodeBlock({ text, language, closed, growing }: CodeProps): JSX.Element {
  const [, render] = useState(0);
  const isWhole = closed || !growing;
  useEffect(() => {
    // Requested with the first line, it is usually loaded by the last one.
    void wantHighlighter(language).then((isNew) => {
      if (isNew) render((count) => count + 1);
    });
  }, [language]);
  const html = isWhole ? highlighted(text, language) : undefined;
  return (
    <figure class="code">
      <figcaption>
        <span>{language === "" ? "text" : language}</span>
        <CopyButton text={text} label="Copy code" />
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long lines are scrolled with the keyboard, too */}
      <pre tabIndex={0}>
        {html === undefined ? (
          <code key="plain">{text}</code>
        ) : (
          <Html key="coloured" of="code" html={html} />
        )}
      </pre>
    </figure>
  );
}
