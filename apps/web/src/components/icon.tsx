// The icons: strokes on a 24 x 24 grid, drawn for this app. One table, so that they look alike.

import type { JSX } from "preact";

const paths = {
  chat: "M4 5h16v11H9l-5 4z",
  story: "M5 4h9l5 5v11H5zM9 12h6M9 16h6M13 4v6h6",
  machine: "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
  limits: "M4 4v16h16M7 16c3 0 3-8 6-8s3 4 7 4",
  quantize: "M4 20V9h4v11M10 20V4h4v16M16 20v-6h4v6M3 20h18",
  models: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  batches: "M4 5h16M4 10h16M4 15h9M15 17.5l2 2 4-4.500",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  plus: "M12 5v14M5 12h14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12.5l4.500 4.500L19 7.500",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  again: "M19 12a7 7 0 1 1-2-5M17 3v4h-4",
  back: "M9 7L4 12l5 5M4 12h10a6 6 0 0 1 6 6",
  undo: "M8 7L4 11l4 4M4 11h10a5 5 0 0 1 0 10h-3",
  redo: "M16 7l4 4-4 4M20 11H10a5 5 0 0 0 0 10h3",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  search: "M11 4a7 7 0 1 0 0 14a7 7 0 0 0 0-14M16 16l4 4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  sliders:
    "M3 8h10M19 8h2M3 16h2M11 16h10M16 5.500a2.500 2.500 0 1 0 0 5a2.500 2.500 0 0 0 0-5M8 13.500a2.500 2.500 0 1 0 0 5a2.500 2.500 0 0 0 0-5",
  download: "M12 4v11M7 10l5 5 5-5M5 20h14",
  upload: "M12 16V5M7 10l5-5 5 5M5 20h14",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  sun: "M12 8a4 4 0 1 0 0 8a4 4 0 0 0 0-8M12 2v2M12 20v2M4 12H2M22 12h-2M5 5l1.500 1.500M17.500 17.500L19 19M19 5l-1.500 1.500M6.500 17.500L5 19",
  moon: "M20 14A8.500 8.500 0 1 1 10 4a6.500 6.500 0 0 0 10 10z",
  auto: "M12 4a8 8 0 1 0 0 16a8 8 0 0 0 0-16M12 4v16M14.500 5v14M17 6.700v10.600",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  fork: "M6 4v6a4 4 0 0 0 4 4h8M14 10l4 4-4 4M6 10v10",
  clip: "M19 11l-7.500 7.500a4 4 0 0 1-6-6L13 5a2.700 2.700 0 0 1 4 4l-7.500 7.500a1.300 1.300 0 0 1-2-2L14 8",
  file: "M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6",
  keyboard: "M3 7h18v11H3zM7 11h.01M11 11h.01M15 11h.01M18 11h.01M7 15h10",
  tool: "M19.500 7.500l-3 3-3-3 3-3a4.800 4.800 0 0 0-6.300 6.300L4 17v3h3l6.200-6.200a4.800 4.800 0 0 0 6.300-6.300z",
  braces:
    "M9 4H8a2 2 0 0 0-2 2v4l-2 2 2 2v4a2 2 0 0 0 2 2h1M15 4h1a2 2 0 0 1 2 2v4l2 2-2 2v4a2 2 0 0 1-2 2h-1",
  bolt: "M13 3L5 14h6l-1 7 8-11h-6z",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class={`icon icon-${name}`} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}

/** The logo. */
export function Mark(): JSX.Element {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <path class="mark-frame" d="M12 6a4 4 0 0 1 8 0M8 7.500h16M7 26h18" />
      <path class="mark-glass" d="M9.500 10h13l1.500 13h-16z" />
      <path
        class="mark-flame"
        d="M16 12c2.500 3 3.500 4.500 3.500 6.500a3.500 3.500 0 0 1-7 0c0-2 1-3.500 3.500-6.500z"
      />
    </svg>
  );
}
