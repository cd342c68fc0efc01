"""How a run fails: what is raised, and which failure is the cause of the others."""
