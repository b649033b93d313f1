"""The report of ``heedful compare``: results as data, and as Markdown, HTML and LaTeX."""
