"""``heedful import`` and ``heedful export`` as a person runs them."""

import subprocess
import sys
from pathlib import Path

import pytest

from command_help import run_command
from interop_help import gpt_folder


def test_there_and_back_again(tmp_path: Path) -> None:
    gpt_folder(tmp_path / "hf")
    config = tmp_path / "hf" / "config.json"
    config.write_text(config.read_text().replace("{", '{"note": "mine",', 1))
    own = ("--ignore-field", "note")
    done = run_command("import", "hf", "hf", "--out", "run", *own, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "run: a run for language-model, from hf\n")
    done = run_command("export", "hf", "run", "--out", "back", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "back: for from_pretrained of transformers\n")
    weights = [tmp_path / name / "model.safetensors" for name in ("hf", "back")]
    assert weights[0].stat().st_size > 0
    assert (tmp_path / "hf" / "tokenizer.json").read_bytes() == (
        tmp_path / "back" / "tokenizer.json"
    ).read_bytes()
    assert weights[1].exists()


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = run_command("import", "hf", "nowhere", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "heedful: nowhere is not a folder; give a folder with a config.json\n"
    done = run_command("export", "hf", "nowhere", "--out", "back", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_transformers_is_not_needed(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "from heedful.interop.importing import import_hf\n"
        "from heedful.interop.exporting import export_hf\n"
        "import_hf('hf', 'run'); export_hf('run', 'back')"
    )
    gpt_folder(tmp_path / "hf")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "back" / "config.json").exists()
