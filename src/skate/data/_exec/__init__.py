"""The execution of plans: operators, the scheduler, drivers, and the work of tasks."""
