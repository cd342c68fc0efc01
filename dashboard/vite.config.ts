import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// A running dashboard to develop against: SKATE_DASHBOARD=http://127.0.0.1:8265 npm run dev
declare const process: { env: Record<string, string | undefined> };
const server = process.env.SKATE_DASHBOARD ?? "http://127.0.0.1:8265";

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/skate/dashboard/static",
    emptyOutDir: true,
    target: "es2022",
    // The server's content security policy allows files of its own only, no data: URLs.
    assetsInlineLimit: 0,
    // ECharts is a file of its own, which the first page does not wait for.
    chunkSizeWarningLimit: 700,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: Object.fromEntries(["/state", "/live", "/actions"].map((path) => [path, server])),
  },
});
