// Calls of machine code in a way that V8 never compiles on another thread.
//
// Node gives V8 a description of every node:ffi function, so that optimized JavaScript calls it directly. V8's
// optimizing compiler reads that description on a background thread. When the calling thread ends (a terminated
// worker, an exiting process), Node frees the description without waiting for the compiler. That is a race in Node 26:
// one run in ten to twenty-five crashed (SIGTRAP or SIGSEGV in OptimizingCompileTaskExecutor::RunCompilationJob).
//
// So JavaScript does not call such a function directly. A WebAssembly module imports it and exports a function that
// only calls it. V8 compiles the import wrapper when the module is instantiated, on this thread, while the description
// is alive, and optimized JavaScript sees an ordinary WebAssembly function. Such a call takes 16 ns, a direct one 7
// ns; a call that V8 is kept from optimizing takes 200 ns (Neoverse-N1).

// biome-ignore format: one section a line
const forwardModule = new Uint8Array([
  0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00,
  0x01, 0x05, 0x01, 0x60, 0x01, 0x7c, 0x00, // type 0: (f64) -> ()
  0x02, 0x07, 0x01, 0x01, 0x66, 0x01, 0x66, 0x00, 0x00, // import "f"."f": function 0, of type 0
  0x03, 0x02, 0x01, 0x00, // function 1 has type 0
  0x07, 0x05, 0x01, 0x01, 0x63, 0x00, 0x01, // export "c": function 1
  0x0a, 0x08, 0x01, 0x06, 0x00, 0x20, 0x00, 0x10, 0x00, 0x0b, // local.get 0, call 0
]);

/** One for the whole thread. */
let compiled: WebAssembly.Module | undefined;

/** The same function, called through WebAssembly. */
export function forwarded(ffiFunction: (argument: number) => void): (argument: number) => void {
  compiled ??= new WebAssembly.Module(forwardModule);
  const { exports } = new WebAssembly.Instance(compiled, { f: { f: ffiFunction } });
  return exports.c as (argument: number) => void;
}
