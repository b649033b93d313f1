"""Tasks: one folder each, with a :class:`~heedful.tasks.spec.TaskSpec`.

``pairs`` and ``texts`` are not tasks: they contain the code shared by the tasks of pairs of texts
and by those of single texts.
"""
