"""Draws the picture of the page's Translate panel: a word of a translation with its alternatives.

python docs/scripts/page_picture.py RUN "TEXT" WORD docs/images/view-translate.png

Needs Chromium and ``pip install playwright``.
"""

import argparse
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

_PORT = 8731
_SECONDS = 240
_WIDTH, _HEIGHT = 1120, 760


def main() -> None:
    """Serve the run, open the page and save the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("text")
    parser.add_argument("word", help="word of the translation whose alternatives are shown")
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    command = [sys.executable, "-m", "heedful", "serve", str(given.run), "--port", str(_PORT)]
    server = subprocess.Popen(command)
    try:
        _wait()
        _draw(given.text, given.word, given.picture)
    finally:
        server.terminate()
        server.wait()


def _wait() -> None:
    for _ in range(_SECONDS):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/api/models").close()
        except urllib.error.URLError:
            time.sleep(1)
        else:
            return
    raise SystemExit("the server did not start")


def _draw(text: str, word: str, picture: Path) -> None:
    from playwright.sync_api import sync_playwright

    view: Any = {"width": _WIDTH, "height": _HEIGHT}
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=view)
        page.set_default_timeout(1000 * _SECONDS)
        address = f"http://127.0.0.1:{_PORT}/#panel=translate&text={urllib.parse.quote_plus(text)}"
        page.goto(address)
        page.locator(".heed-target > *", has_text=word).first.click()
        page.wait_for_selector(".heed-menu [role=menuitem]")
        page.wait_for_timeout(3000)
        page.screenshot(path=picture, full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
