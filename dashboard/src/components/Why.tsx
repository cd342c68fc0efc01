// "Why is this waiting": one click on anything that waits.

import { Drawer } from "@mantine/core";
import { createContext, useCallback, useContext, useMemo, useState, type ReactNode } from "react";

import { useTopic } from "../live";
import type { Why } from "../types";
import { Pending } from "./basics";

interface Question {
  id: string;
  name: string;
}

const Asking = createContext<(question: Question) => void>(() => undefined);

export function WhyProvider({ children }: { children: ReactNode }) {
  const [question, setQuestion] = useState<Question | null>(null);
  const [opened, setOpened] = useState(false);
  const ask = useCallback((asked: Question) => {
    setQuestion(asked);
    setOpened(true);
  }, []);
  const answer = useMemo(() => <>{children}</>, [children]);
  return (
    <Asking.Provider value={ask}>
      {answer}
      <Drawer
        opened={opened}
        onClose={() => setOpened(false)}
        position="right"
        size="md"
        title="Why is this waiting?"
        zIndex={400}
        closeButtonProps={{ "aria-label": "Close" }}
      >
        {question && <Answer {...question} opened={opened} />}
      </Drawer>
    </Asking.Provider>
  );
}

function Answer({ id, name, opened }: Question & { opened: boolean }) {
  const topic = useTopic<Why>(opened ? `/state/why/${id}` : null);
  return (
    <>
      <p style={{ marginTop: 0, overflowWrap: "anywhere" }}>
        <strong>{name}</strong>
        <br />
        <span className="mono muted">{id}</span>
      </p>
      <Pending topic={topic} what="The reason" />
      <ul className="why-lines" aria-live="polite">
        {topic.data?.lines.map((line, index) => (
          <li key={index}>{line}</li>
        ))}
      </ul>
    </>
  );
}

/** A button that opens the reason why something waits. */
export function WhyButton({ id, name }: Question) {
  const ask = useContext(Asking);
  return (
    <button
      type="button"
      className="why"
      aria-label={`Why is ${name} waiting?`}
      onClick={(event) => {
        event.stopPropagation();
        ask({ id, name });
      }}
    >
      Why?
    </button>
  );
}
