// A terminal for tests: remembers what was written, types what it was told to, and can press Ctrl-C.

import type {
  interrupted,
  LineReader,
  MachineFacts,
  MachineLoad,
  Terminal,
} from "../../src/platform/node-cli.ts";
import type { GpuAdapter } from "../../src/platform/node-vulkan.ts";

export type ScriptedLine = string | typeof interrupted;

export class FakeTerminal implements Terminal {
  stdout = "";
  stderr = "";
  inIsTerminal = false;
  outIsTerminal = false;
  errIsTerminal = false;
  columns = 80;
  /** What env() answers. Nothing is measured unless a test is about that. */
  environment: Record<string, string> = { LANTERN_NO_LIMIT: "1" };
  /** What is typed, or comes through the pipe. */
  script: ScriptedLine[] = [];
  input = "";
  readonly files: Map<string, string> = new Map();
  /** Milliseconds that now() returns; tests move it on. */
  clock = 0;
  /** Called after each write to stdout. */
  onOut: (() => void) | undefined;
  #interruptListeners = new Set<() => void>();
  #hangupListeners = new Set<() => void>();

  out(text: string): void {
    this.stdout += text;
    this.onOut?.();
  }
  err(text: string): void {
    this.stderr += text;
  }
  env(name: string): string | undefined {
    return this.environment[name];
  }
  async readInput(): Promise<string> {
    return this.input;
  }
  async readText(path: string): Promise<string> {
    return this.files.get(path) ?? "";
  }
  async writeText(path: string, text: string): Promise<void> {
    this.files.set(path, text);
  }
  async checkWritable(_path: string): Promise<void> {}
  async checkFolder(_path: string): Promise<void> {}
  gpuAdapters(): readonly GpuAdapter[] | string {
    return [{ name: "Fake GPU", kind: "discrete", memoryBytes: 8e9 }];
  }
  lines(): LineReader {
    return { next: async () => this.script.shift(), close: () => {} };
  }
  onInterrupt(listener: () => void): () => void {
    this.#interruptListeners.add(listener);
    return () => this.#interruptListeners.delete(listener);
  }
  pressCtrlC(): void {
    for (const listener of this.#interruptListeners) listener();
  }
  onHangup(listener: () => void): () => void {
    this.#hangupListeners.add(listener);
    return () => this.#hangupListeners.delete(listener);
  }
  hangUp(): void {
    for (const listener of this.#hangupListeners) listener();
  }
  outliveReaders(): void {}
  now(): number {
    return this.clock;
  }
  machine(): MachineFacts {
    return { cpu: "Fake", cores: 2, memoryBytes: 8e9, freeBytes: 4e9, system: "test" };
  }
  load(): MachineLoad {
    return { loadAverage: 0.5, busySeconds: 0, ownSeconds: 0, atMs: this.clock };
  }
}
