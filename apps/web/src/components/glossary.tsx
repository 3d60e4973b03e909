// The terms of the Limits page, explained for newcomers.

import type { JSX } from "preact";

const words: readonly (readonly [word: string, meaning: string])[] = [
  [
    "Token",
    "The unit of text that a model reads and writes: a short word, or part of a longer one. A hundred English words are about 130 tokens.",
  ],
  [
    "Weights",
    "The numbers that a model has learned, often billions of them. Every token needs all of them, so a model half as large generates twice as fast.",
  ],
  [
    "Bits per weight",
    "How much memory one weight takes. Models are trained with 16 bits; with 4 to 6 bits they answer almost as well, with 2 bits noticeably worse.",
  ],
  [
    "Context",
    "The longest text that a model can read at once: the prompt and the answer together.",
  ],
  [
    "KV cache",
    "What was computed for the text so far, kept so that it is not computed again. It grows with every token.",
  ],
  [
    "KV heads (GQA)",
    "Models that share keys and values between several heads (grouped-query attention) have a smaller KV cache.",
  ],
  ["Memory bandwidth", "How many bytes the memory delivers per second. It limits generation."],
  [
    "Arithmetic",
    "How many multiplications and additions the chip computes per second. It limits long prompts.",
  ],
  [
    "Turning point",
    "Shorter prompts are limited by memory bandwidth: they all take the time of reading the weights once. Longer ones are limited by arithmetic, and every token takes more time.",
  ],
  ["First token", "The time from sending a prompt to the first token of the answer."],
];

export function Glossary(): JSX.Element {
  return (
    <details class="card glossary">
      <summary>What these words mean</summary>
      <dl>
        {words.map(([word, meaning]) => (
          <div key={word}>
            <dt>{word}</dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
