// The clients that `lantern launch` knows, in the order of its list. A client is one file here and one line.

import type { Client } from "../client.ts";
import { chatgpt } from "./chatgpt.ts";
import { claude } from "./claude.ts";
import { claudeDesktop } from "./claude-desktop.ts";
import { cline } from "./cline.ts";
import { codex } from "./codex.ts";
import { continueCli } from "./continue.ts";
import { copilot } from "./copilot.ts";
import { droid } from "./droid.ts";
import { dsh } from "./dsh.ts";
import { hermes, hermesDesktop } from "./hermes.ts";
import { kimi } from "./kimi.ts";
import { muse } from "./muse.ts";
import { omp } from "./omp.ts";
import { openclaw } from "./openclaw.ts";
import { opencode } from "./opencode.ts";
import { pi } from "./pi.ts";
import { pool } from "./pool.ts";
import { qwen } from "./qwen.ts";
import { vscode } from "./vscode.ts";

export const clients: readonly Client[] = [
  claude,
  codex,
  opencode,
  cline,
  copilot,
  qwen,
  pi,
  omp,
  continueCli,
  kimi,
  droid,
  pool,
  muse,
  dsh,
  openclaw,
  hermes,
  hermesDesktop,
  vscode,
  claudeDesktop,
  chatgpt,
];
