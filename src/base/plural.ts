// Numbers with their nouns, for messages: "1 token", "2 tokens".

export function plural(count: number, noun: string, many: string = `${noun}s`): string {
  return `${count} ${count === 1 ? noun : many}`;
}
