// Outline icons on a grid of 16 pixels.

import type { ReactNode } from "react";

const PATHS: Record<string, ReactNode> = {
  overview: <path d="M2 13V9m4 4V3m4 10V6m4 7v-3" />,
  tasks: <path d="M2 4h6M5 8h7M9 12h5" />,
  actors: (
    <>
      <circle cx="8" cy="5" r="2.6" />
      <path d="M3 14c.4-3 2.4-4.4 5-4.4s4.6 1.4 5 4.4" />
    </>
  ),
  objects: <path d="M8 1.8 14 5v6l-6 3.200L2 11V5zM2 5l6 3.200L14 5M8 8.200v6" />,
  groups: <path d="M2 2.500h5v5H2zM9 8.500h5v5H9zM9 2.500h5M9 5h3M2 11h5M2 13.500h3" />,
  workers: (
    <path d="M4 4h8v8H4zM6.5 1.500V4m3-2.500V4m-3 8v2.500m3-2.500v2.500M1.5 6.500H4m-2.5 3H4m8-3h2.500m-2.5 3h2.5" />
  ),
  logs: <path d="M3.5 1.800h6l3 3v9.400h-9zM6 7.500h4M6 10.500h4" />,
  jobs: <path d="M3 2.500v11l10-5.500z" />,
  data: (
    <>
      <ellipse cx="8" cy="3.6" rx="5.5" ry="2" />
      <path d="M2.5 3.600v8.800c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2V3.600M2.5 8c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2" />
    </>
  ),
  train: <path d="M2 2v12h12M4.5 4c1 5.5 3.5 7 9 7.3" />,
  tune: <path d="M4 2v5m0 4v3M8 2v2m0 4v6M12 2v6m0 4v2M2.5 9h3M6.5 6h3M10.5 10h3" />,
  serve: (
    <>
      <circle cx="8" cy="8" r="6.2" />
      <path d="M1.8 8h12.400M8 1.800c-4 4-4 8.4 0 12.4 4-4 4-8.4 0-12.4" />
    </>
  ),
  models: <path d="M2 3h12v8H7.500L4.5 13.700V11H2zM5 6h6M5 8.300h4" />,
  sun: (
    <>
      <circle cx="8" cy="8" r="3" />
      <path d="M8 1v2m0 10v2M1 8h2m10 0h2M3 3l1.5 1.500m7 7L13 13m0-10-1.5 1.500m-7 7L3 13" />
    </>
  ),
  moon: <path d="M13.5 9.500A6 6 0 0 1 6.5 2.500a6 6 0 1 0 7 7" />,
  auto: (
    <>
      <circle cx="8" cy="8" r="6" />
      <path d="M8 2v12a6 6 0 0 0 0-12" fill="currentColor" />
    </>
  ),
};

export function Icon({ name, size = 16 }: { name: string; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.3"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      {PATHS[name]}
    </svg>
  );
}
