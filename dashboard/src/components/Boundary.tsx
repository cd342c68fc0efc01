// Parts that fail: a page that cannot be drawn, a file of the page that cannot be loaded.

import { Button } from "@mantine/core";
import { Component, lazy, type ComponentType, type ReactNode } from "react";

import { currentConnection } from "../live";

const TRIES = 4; // while the server answers: then the file is gone, since the server is of another version
const PAUSE_MS = 1500;

/** Like `lazy`, but a file that cannot be loaded while the connection is lost is loaded later. */
export function lazyPart<Props>(load: () => Promise<{ default: ComponentType<Props> }>) {
  const attempt = async (left: number): Promise<{ default: ComponentType<Props> }> => {
    try {
      return await load();
    } catch (error) {
      const failures = currentConnection() === "open" ? left - 1 : left;
      if (failures === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      return attempt(failures);
    }
  };
  return lazy(() => attempt(TRIES));
}

interface State {
  problem: string | null;
}

/** Shows a message in place of a part that fails, so that the rest of the page stays. */
export class Boundary extends Component<{ children: ReactNode }, State> {
  override state: State = { problem: null };

  static getDerivedStateFromError(error: unknown): State {
    return { problem: error instanceof Error ? error.message : String(error) };
  }

  override render(): ReactNode {
    if (this.state.problem === null) return this.props.children;
    return (
      <div className="empty" role="alert">
        <p className="error-text">This part of the page failed: {this.state.problem}</p>
        <Button size="xs" variant="default" onClick={() => window.location.reload()}>
          Load the page again
        </Button>
      </div>
    );
  }
}
