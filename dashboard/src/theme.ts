// Colours and sizes. There is one accent colour; other colours only tell states and series apart.

import { createTheme, type CSSVariablesResolver } from "@mantine/core";

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Ubuntu, "DejaVu Sans", sans-serif';
const MONOSPACE = 'ui-monospace, SFMono-Regular, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';

export const theme = createTheme({
  primaryColor: "indigo",
  primaryShade: { light: 7, dark: 5 },
  fontFamily: FONT,
  fontFamilyMonospace: MONOSPACE,
  headings: { fontFamily: FONT, fontWeight: "600" },
  colors: {
    // Greys of the dark scheme, with a little blue.
    dark: [
      "#e2e5ea",
      "#c2c8d1",
      "#9ba4b1",
      "#7b8494",
      "#3c4350",
      "#323843",
      "#20242c",
      "#181b21",
      "#111318",
      "#0b0d10",
    ],
  },
  defaultRadius: "sm",
  cursorType: "pointer",
  focusRing: "auto",
  respectReducedMotion: true,
  fontSizes: { xs: "0.75rem", sm: "0.8125rem", md: "0.875rem", lg: "1rem", xl: "1.125rem" },
});

export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-body": "#fbfbfc",
    "--mantine-color-text": "#1b1e24",
    "--mantine-color-dimmed": "#5a6270",
    "--mantine-color-default-border": "#dfe2e7",
    "--surface": "#ffffff",
    "--hover": "#f1f3f6",
    "--line": "#e6e8ec",
    "--accent": "#3b5bdb",
    "--accent-soft": "#e8ecfd",
    "--good": "#1f8a4c",
    "--wait": "#a15c00",
    "--bad": "#c92a2a",
    "--idle": "#8a93a0",
  },
  dark: {
    "--mantine-color-body": "#111318",
    "--mantine-color-text": "#e2e5ea",
    "--mantine-color-dimmed": "#9ba4b1",
    "--mantine-color-default-border": "#323843",
    "--surface": "#181b21",
    "--hover": "#20242c",
    "--line": "#272c35",
    "--accent": "#8aa2ff",
    "--accent-soft": "#232c4d",
    "--good": "#4cc38a",
    "--wait": "#f0b429",
    "--bad": "#ff8080",
    "--idle": "#7b8494",
  },
});

/** Colours of series and of events on the timeline, of equal weight on light and on dark ground. */
export const SERIES = ["#4c6ef5", "#12a594", "#e8890c", "#c2559d", "#7c66dc", "#3a9bd9", "#8d9b34", "#d9534f"];

export function seriesColor(index: number): string {
  return SERIES[index % SERIES.length] ?? "#4c6ef5";
}
