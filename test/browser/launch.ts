// The browser of the tests and of bench/wllama.ts: a Chromium that is installed on this machine (nothing is downloaded),
// driven by playwright-core.

import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";

const usualPlaces = [
  "/usr/bin/chromium",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** undefined: none is installed; LANTERN_CHROMIUM can name one. */
export const chromiumPath: string | undefined = [
  ...(process.env.LANTERN_CHROMIUM ? [process.env.LANTERN_CHROMIUM] : []),
  ...usualPlaces,
].find((path) => existsSync(path));

/** How long a page may take for anything on a busy machine; what it waits for comes at once on a free one. */
const patienceMs = 120_000;

const flags = [
  "--no-sandbox", // it may run as root in a container, and opens nothing but our own pages
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/**
 * WebGPU on the software adapter that Chromium brings. It takes seconds to compile the clearing of workgroup memory, on
 * which no kernel relies; in Node there is none, either.
 */
const webgpuFlags = [
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--enable-dawn-features=disable_workgroup_init",
];

export async function launchBrowser({
  webgpu = false,
  more = [],
}: {
  webgpu?: boolean;
  /** Flags of this browser alone. */
  more?: readonly string[];
} = {}): Promise<Browser> {
  const args = [...flags, ...(webgpu ? webgpuFlags : ["--disable-gpu"]), ...more];
  const options = { executablePath: chromiumPath!, args, timeout: patienceMs };
  const browser = await chromium.launch(options);
  const newContext = browser.newContext.bind(browser);
  browser.newContext = async (given) => {
    const context = await newContext(given);
    context.setDefaultTimeout(patienceMs);
    return context;
  };
  return browser;
}
