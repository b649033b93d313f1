"""Subtitles: SubRip (``.srt``) and WebVTT (``.vtt``)."""

import re

from heedful.data.documents.text_spans import TextSpanDocument

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_TIME = re.compile(r"^[ \t]*(?:\d+:)?\d+:\d+[.,]\d+[ \t]*-->[ \t]*(?:\d+:)?\d+:\d+[.,]\d+.*$")


class SubtitleDocument(TextSpanDocument):
    """The texts of cues. The lines of a cue are one segment and keep their number."""

    def find(self) -> None:
        self._line_end = "\r\n" if "\r\n" in self.text else "\n"
        place = 0
        start = -1  # of the cue's text
        end = 0
        before = 0  # the end of the cue's text without its last line, if that may be a number
        for line in _LINE.findall(self.text):
            content = line.rstrip("\r\n")
            if _TIME.match(content):
                if start >= 0:  # no empty line ends the cue before
                    self._add_cue(start, before)
                start = end = before = place + len(line)
            elif start >= 0 and not content.strip():
                self._add_cue(start, end)
                start = -1
            elif start >= 0:
                before = end if content.strip().isdecimal() else place + len(content)
                end = place + len(content)
            place += len(line)
        if start >= 0:
            self._add_cue(start, end)
        if not self.segments and self.text.strip() and not self.text.startswith("WEBVTT"):
            raise self.broken(0, "no cue with times, such as 00:00:01,000 --> 00:00:02,000")

    def _add_cue(self, start: int, end: int) -> None:
        self.add(start, max(start, end), self.text[start:end].replace("\r\n", "\n"))

    def escaped(self, place: int, translation: str) -> str:
        # An empty line would end the cue.
        text = "\n".join(line for line in translation.split("\n") if line.strip())
        return text.replace("\n", self._line_end)
