// WebGPU's buffer usage and map mode bits, with the numbers of the specification. In a browser they are globals, in Node not.

export const usage = {
  mapRead: 0x0001,
  copySource: 0x0004,
  copyTarget: 0x0008,
  storage: 0x0080,
  queryResolve: 0x0200,
} as const;

export const MAP_READ = 0x0001;
