// scan_channels: one token of the selective scan of Mamba 1, for `channels` neighbouring channels, each with `states` floats of
// state and as many decays:
//   S = e^(dt a) S + b (dt x), out = c S + skip x
// Reads the state at `from` and writes it at `to`, which may be the same address. `states` is a multiple of the lanes.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import { load, store, stream } from "../loops.ts";
import { exp } from "../math.ts";

export function channelScan(width: number): Kernel {
  const k = new KernelBuilder("scan_channels", width);
  const from = stream(k, k.param("ptr", "from"));
  const to = stream(k, k.param("ptr", "to"));
  const x = k.variable(k.param("ptr", "x"));
  const dt = k.variable(k.param("ptr", "dt"));
  const out = k.variable(k.param("ptr", "out"));
  const a = stream(k, k.param("ptr", "a"));
  const b = k.param("ptr", "b");
  const c = k.param("ptr", "c");
  const skip = k.variable(k.param("ptr", "skip"));
  const channels = k.param("i32", "channels");
  const states = k.param("i32", "states");
  const rounds = k.op("i32.shr_u", [states], Math.log2(k.lanes));

  k.loop(channels, () => {
    const step = k.op("f32v.load_splat", [dt]);
    const value = k.op("f32.load", [x]);
    const input = k.op("f32v.mul", [step, k.op("f32v.splat", [value])]);
    const sum = k.variable(k.op("f32v.const", [], 0));
    const [bs, cs] = [stream(k, b), stream(k, c)];
    k.loop(rounds, () => {
      const decay = exp(k, k.op("f32v.mul", [step, load(k, a, 0)]));
      const added = k.op("f32v.mul", [input, load(k, bs, 0)]);
      const kept = k.op("f32v.fma", [load(k, from, 0), decay, added]);
      store(k, to, 0, kept);
      k.update(sum, "f32v.fma", [kept, load(k, cs, 0), sum]);
      for (const { pointer, step: bytes } of [from, to, a, bs, cs]) k.advance(pointer, bytes);
    });
    const skipped = k.op("f32.mul", [k.op("f32.load", [skip]), value]);
    k.op("f32.store", [out, k.op("f32.add", [k.op("f32v.sum", [sum]), skipped])]);
    for (const pointer of [x, dt, out, skip]) k.advance(pointer, 4);
  });
  return k.finish();
}
