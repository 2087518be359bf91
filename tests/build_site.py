"""Builds the documentation site with Sphinx and checks what was built.

    python tests/build_site.py [FOLDER]     default: build/site

A warning of Sphinx is an error.  See ``site/conf.py``, and ``tests/site_checks.py`` for the checks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.site_checks import site_problems  # noqa: E402

FOLDER = ROOT / "build" / "site"
SPHINX = (sys.executable, "-m", "sphinx", "--builder", "html", "--conf-dir", "site", "--quiet")
STRICT = ("--fail-on-warning", "--keep-going", "--nitpicky", "--fresh-env")
SOURCES = ("*.md", "migration_docs/README.md", "migration_docs/*/*.md", "examples/*/README.md", "site/api/*.rst")


def sources() -> list[str]:
    """The pages of the site, below the root of the tree."""
    return [path.relative_to(ROOT).as_posix() for pattern in SOURCES for path in sorted(ROOT.glob(pattern))]


def main() -> int:
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    doctrees = folder.with_name(f"{folder.name}-doctrees")
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    built = subprocess.run(
        [*SPHINX, *STRICT, "--doctree-dir", str(doctrees), str(ROOT), str(folder)],
        cwd=ROOT, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    shutil.rmtree(doctrees, ignore_errors=True)
    problems = site_problems(folder, sources()) if (folder / "searchindex.js").exists() else ["no site was built"]
    print("\n".join(problems) or f"{folder / 'index.html'}: {len(sources())} pages", flush=True)
    return built.returncode or (1 if problems else 0)


if __name__ == "__main__":
    sys.exit(main())
