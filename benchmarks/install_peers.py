"""Install the packages that heedful is measured against, each into an environment of its own.

    python benchmarks/install_peers.py            all of them
    python benchmarks/install_peers.py NAME …     these only

Their requirements clash with one another's, so each has a folder under ``benchmarks/.peers``;
delete it to install anew. PyTorch goes in first, in the very version that heedful is tested with
(``constraints.txt``), and is held there while the rest follows: programs are compared, not builds
of PyTorch.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE / ".peers"
PEERS = {"transformers": ["transformers==5.23.0", "numpy"]}
"""Peer → what pip installs for it, beside PyTorch."""


def peer_python(name: str) -> Path | None:
    """The Python of an installed peer, or None."""
    environment = FOLDER / name
    whole = (environment / "installed").exists()
    return environment / "bin" / "python" if whole else None


def how_to_install(name: str) -> str:
    """One line for a report in which the peer is missing."""
    return f"{name} is not installed; python benchmarks/install_peers.py {name}"


def pinned(package: str) -> str:
    """The package as ``constraints.txt`` pins it: ``torch==2.13.0``."""
    lines = (HERE.parent / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{package}=="))


def install(name: str) -> None:
    """Make a peer's environment; half an environment is made anew."""
    environment = FOLDER / name
    shutil.rmtree(environment, ignore_errors=True)
    print(f"installing {name} into {environment}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    torch = pinned("torch")
    constraint = environment / "constraints.txt"
    constraint.write_text(f"{torch}\n", encoding="utf-8")
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--constraint", str(constraint)]
    subprocess.run([*pip, torch], check=True)
    subprocess.run([*pip, *PEERS[name]], check=True)
    (environment / "installed").touch()


def main() -> int:
    """Install what is asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PEERS)}; or all")
    names = parser.parse_args().names or list(PEERS)
    for name in names:
        if name not in PEERS:
            parser.error(f"unknown peer '{name}'; known: {', '.join(PEERS)}")
    for name in names:
        if peer_python(name):
            print(f"{name} is installed; delete {FOLDER / name} to install it anew")
            continue
        try:
            install(name)
        except subprocess.CalledProcessError as error:
            print(f"{name} could not be installed (pip says why above): {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
