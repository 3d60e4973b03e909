// WebGPU's buffer usage and map mode bits, with the numbers of the specification. In a browser they are globals, in Node not.

export const usage = {
  mapRead: 0x0001,
  mapWrite: 0x0002,
  copySource: 0x0004,
  copyTarget: 0x0008,
  storage: 0x0080,
  queryResolve: 0x0200,
} as const;

export const MAP_READ = 0x0001;
export const MAP_WRITE = 0x0002;
