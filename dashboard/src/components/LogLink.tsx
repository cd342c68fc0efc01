// A link to the log of a task, an actor, a worker, a job or a replica, where there is one.

import { Link } from "wouter";

import { pathOf, useTopic } from "../live";
import type { LogFile } from "../types";

interface Props {
  /** Whether a file is the log. */
  isLog: (file: LogFile) => boolean;
  label?: string;
}

export function LogLink({ isLog, label = "Log" }: Props) {
  const file = useTopic<{ files: LogFile[] }>("/state/logs").data?.files.find(isLog);
  if (file === undefined) return null;
  return (
    <Link href={pathOf("/logs", { file: file.name })} title={file.name}>
      {label}
    </Link>
  );
}
