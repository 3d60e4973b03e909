// Loaded into workers of the stress test before anything else: whoever reads a request with the word POISON dies at once, as by kill -9.

const parse = JSON.parse;
JSON.parse = (text, reviver) => {
  if (typeof text === "string" && text.includes("POISON")) process.kill(process.pid, "SIGKILL");
  return parse(text, reviver);
};
