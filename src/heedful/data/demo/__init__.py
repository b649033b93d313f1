"""The built-in demo corpus: right answers by construction, no download."""

from heedful.data.demo.corpus import DemoCorpus, demo_corpus, describe

__all__ = ["DemoCorpus", "demo_corpus", "describe"]
