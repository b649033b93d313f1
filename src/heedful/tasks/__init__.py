"""Tasks: one folder each, with a :class:`~heedful.tasks.spec.TaskSpec`.

``pairs`` and ``texts`` are not tasks: they hold what the tasks of pairs of texts, and those of
single texts, have in common.
"""
