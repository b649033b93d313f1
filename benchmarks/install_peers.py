"""Install the packages that heedful is compared with.

    python benchmarks/install_peers.py            all packages
    python benchmarks/install_peers.py NAME …     only these

Their requirements conflict, so each has its own folder under ``benchmarks/.peers``; delete the
folder to reinstall. PyTorch is installed first and pinned to the version that heedful is tested
with (``constraints.txt``), so that the comparison does not depend on the version of PyTorch. Only
CTranslate2 is installed in heedful's environment: it is an extra of heedful, whose exporter writes
the models for it.
"""

import argparse
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
FOLDER = HERE / ".peers"


class Peer(NamedTuple):
    """The packages of a peer in addition to PyTorch."""

    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()
    """Packages to install without dependencies, which are incompatible with this Python or
    PyTorch."""


PEERS = {
    "ctranslate2": Peer(("ctranslate2",)),
    "transformers": Peer(("transformers==5.23.0", "numpy")),
    "eole": Peer(("eole==0.6.4", "aiohttp")),
    "sockeye": Peer(("pyyaml", "sacrebleu", "numpy"), alone=("sockeye==3.1.34",)),
    "joeynmt": Peer(("joeynmt==2.3.0", "importlib_metadata")),
}
OURS = "ctranslate2"
"""Whether to install it in heedful's environment."""


def peer_python(name: str) -> Path | None:
    """The Python of an installed peer, or None."""
    if name == OURS:
        return Path(sys.executable) if find_spec(name) else None
    environment = FOLDER / name
    whole = (environment / "installed").exists()
    return environment / "bin" / "python" if whole else None


def how_to_install(name: str) -> str:
    """A line for reports without this peer."""
    return f"{name} is not installed; run python benchmarks/install_peers.py {name}"


def pinned(package: str) -> str:
    """The version of the package in ``constraints.txt``: ``torch==2.13.0``."""
    lines = (HERE.parent / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{package}=="))


def install(name: str) -> None:
    """Create a peer's environment; an incomplete environment is replaced."""
    constraints = HERE.parent / "constraints.txt"
    if name == OURS:
        _pip(Path(sys.executable), constraints, *PEERS[name].packages)
        return
    environment = FOLDER / name
    shutil.rmtree(environment, ignore_errors=True)
    print(f"installing {name} into {environment}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python, torch = environment / "bin" / "python", pinned("torch")
    constraint = environment / "constraints.txt"
    constraint.write_text(f"{torch}\n", encoding="utf-8")
    _pip(python, constraint, torch)
    if PEERS[name].alone:
        _pip(python, constraint, "--no-deps", *PEERS[name].alone)
    _pip(python, constraint, *PEERS[name].packages)
    (environment / "installed").touch()


def _pip(python: Path, constraint: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--constraint", str(constraint), *arguments], check=True)


def main() -> int:
    """Install the selected peers that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PEERS)}; or all")
    names = parser.parse_args().names or list(PEERS)
    for name in names:
        if name not in PEERS:
            parser.error(f"unknown peer '{name}'; known: {', '.join(PEERS)}")
    for name in names:
        if peer_python(name):
            again = "" if name == OURS else f"; delete {FOLDER / name} to reinstall it"
            print(f"{name} is installed{again}")
            continue
        try:
            install(name)
        except subprocess.CalledProcessError as error:
            print(
                f"{name} could not be installed (see pip's output above): {error}", file=sys.stderr
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
