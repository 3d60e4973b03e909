// Texts to tokenize: written ones of every sort, and reproducible random ones.

const written: readonly string[] = [
  "",
  " ",
  "   ",
  "\n",
  "\t\t\n \r\n  x",
  "Hello, world!",
  " leading and trailing ",
  "I'm sure they'll say it's what we've got, y'all'd they'RE 'S 'Tis",
  "The year 2024 had 366 days; 1234567890 and 3.14159 and 1,000,000.",
  "naïve café Ünïcödé ÅNGSTRÖM straße İstanbul ǅungla",
  "e\u0301 n\u0303 combining; पकाउने हिन्दी தமிழ் ไทย ខ្មែរ العربية עברית",
  "我想在apple工作1314151天～ 日本語のテスト。한국어 문장입니다. 𠀀𪜶",
  "🚀 (normal) 😶‍🌫️ (joined) ✅ 👩‍👩‍👧‍👦 🇩🇪 ☃️",
  "a\u00a0b\u2003c\u3000d\u200be\u2028f\u2029g\ufeffh\u0085i",
  "\u0000\u0001\u001b[31mred\u001b[0m\u007f",
  "function f(x) {\n\treturn x ** 2; // square\n}\n\nconst a = [1, 2, 3].map((n) => n * 2);\n",
  "def main():\n    print(f\"{x!r:>10}\")\n\n\nif __name__ == '__main__':\n    main()\n",
  '<html>\n  <body class="a b">&amp; <!-- ... --></body>\n</html>',
  "$x^2 + \\frac{1}{2} = \\sum_{i=0}^{n} i$ ~~ `code` | a | b | <= >= != ==",
  "http://example.com/a/b?c=d&e=f#g user@example.org C:\\Windows\\System32",
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
  "AAAAaaaaAAAA CamelCaseAndSNAKE_case UPPER lower MiXeD",
  "----====++++....!!!!????   ...   !!!\n\n\n\n   \n\n",
  "½ ² ³ Ⅷ ٣٤٥ ①②③ ௧ 一二三",
  "\ud800 lone \udc00 surrogates \ud83d",
  "x <|endoftext|> y <s> z </s> [CLS] [SEP] <unk> <0x0A>",
];

/** A small reproducible generator (mulberry32). */
export function randomSource(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const alphabets: readonly ((random: () => number) => string)[] = [
  (random) => String.fromCodePoint(0x20 + Math.floor(random() * 0x5f)),
  (random) => " \n\t\r'.,!?-"[Math.floor(random() * 10)]!,
  (random) => String.fromCodePoint(0x61 + Math.floor(random() * 26)),
  (random) => String.fromCodePoint(0xa0 + Math.floor(random() * 0x500)),
  (random) => String.fromCodePoint(0x4e00 + Math.floor(random() * 0x1000)),
  (random) => String.fromCodePoint(0x1f300 + Math.floor(random() * 0x300)),
  (random) => String.fromCodePoint(Math.floor(random() * 0x3000)),
  (random) => {
    const code = Math.floor(random() * 0x110000);
    return String.fromCodePoint(code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
  },
];

/** `count` random texts: each mixes a few alphabets, so that words, marks and scripts meet in all orders. */
export function randomTexts(count: number, seed: number): string[] {
  const random = randomSource(seed);
  return Array.from({ length: count }, () => {
    const own = [0, 1, 2].map(() => alphabets[Math.floor(random() * alphabets.length)]!);
    const length = 1 + Math.floor(random() * 60);
    let text = "";
    while (text.length < length) text += own[Math.floor(random() * own.length)]!(random);
    return text;
  });
}

/** Random bytes read as UTF-8, invalid ones included. */
export function randomByteTexts(count: number, seed: number): string[] {
  const random = randomSource(seed);
  const decoder = new TextDecoder();
  return Array.from({ length: count }, () =>
    decoder.decode(Uint8Array.from({ length: 40 }, () => Math.floor(random() * 256))),
  );
}

export function sampleTexts(random = 300): string[] {
  return [...written, ...randomTexts(random, 1), ...randomByteTexts(random / 5, 2)];
}
