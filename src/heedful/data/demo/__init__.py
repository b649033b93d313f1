"""The built-in demo corpus: correct by construction, without a download."""

from heedful.data.demo.corpus import DemoCorpus, demo_corpus, describe

__all__ = ["DemoCorpus", "demo_corpus", "describe"]
