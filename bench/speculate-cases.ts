// The prompts of bench/speculate.ts. A model with a chat template is asked; for others the task is a text to continue, whose answer has
// begun. They are short, because the smallest models have contexts of 256 tokens.

export interface Case {
  readonly name: string;
  readonly prompt: string;
  readonly asked: string;
  /** 0: greedy. Free prose is sampled: greedy texts of small models soon repeat themselves. */
  readonly temperature: number;
}

const story =
  "Once upon a time, there was a little girl named Lily. She loved to play in the park with her dog, Max. One day, Lily and Max found a big red ball under a tree. Then Lily's mom called her home.";

const passage =
  "Tim had a toy car. The car was red and fast. Tim played with the car all day. He was very happy.";

const code = `function total(prices) {
  let sum = 0;
  for (const price of prices) sum += price;
  return sum;
}
`;

const balls = "Tom has a red ball. Tom has a blue ball. ";

export const cases: readonly Case[] = [
  {
    name: "repeats",
    prompt: "Tom has a ball. ".repeat(10).trimEnd(),
    asked: `Write this ten times: ${balls}`,
    temperature: 0,
  },
  {
    name: "passage",
    prompt: `${passage}\n${passage}\n${passage}\n${passage.slice(0, 40)}`,
    asked: `Repeat this text word for word, three times:\n\n${passage}`,
    temperature: 0,
  },
  {
    name: "edit",
    prompt: `${code}\n${code}\n${code.replace("total", "cost").slice(0, 40)}`,
    asked: `Return this code with cost instead of total:\n${code}`,
    temperature: 0,
  },
  {
    name: "quotes",
    prompt: `${story}\nThe story says: "${story.slice(0, 60)}`,
    asked: `Summarise this story with quotes from it: ${story}`,
    temperature: 0,
  },
  {
    name: "prose",
    prompt: "Once upon a time, in a small village by the sea,",
    asked: "Tell me a story of a small village by the sea.",
    temperature: 1,
  },
];
