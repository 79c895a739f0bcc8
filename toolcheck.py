"""Names the build tool that is missing, in one line. Used by setup.py and the Makefile; runs on any Python 3."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile

PYTHON_MINIMUM = (3, 10)
GO_MINIMUM = (1, 25)

# What the shim relies on: the language mode and a library header that came with it.
CXX_PROBE = "#include <span>\nstatic_assert(__cplusplus >= 202002L);\nint main() {}\n"


class MissingTool(Exception):
    """A tool that the build needs is missing or too old; the text is one line for the user."""


def cxx():
    """The C++ compiler's command as a list: $CXX, else c++."""
    return shlex.split(os.environ.get("CXX") or "c++")


def check_python():
    if sys.version_info < PYTHON_MINIMUM:
        want, have = ("%d.%d" % PYTHON_MINIMUM, "%d.%d" % sys.version_info[:2])
        raise MissingTool("axlm needs Python %s or newer; %s is %s" % (want, sys.executable, have))


def check_python_headers():
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    if not os.path.exists(header):
        raise MissingTool("axlm needs Python's C headers to build (Debian: python3-dev); there is no %s" % header)


def check_venv():
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            raise MissingTool("axlm needs Python's venv and pip (Debian: python3-venv)") from None


def check_go():
    want = "%d.%d" % GO_MINIMUM
    if shutil.which("go") is None:
        raise MissingTool("axlm needs Go %s or newer to build; there is no 'go' on PATH" % want)
    # In a folder without go.mod: an old go refuses to do anything where go.mod asks for a newer one.
    env = dict(os.environ, GOTOOLCHAIN="local", GOFLAGS="", GOWORK="off")
    result = subprocess.run(["go", "version"], cwd=tempfile.gettempdir(), env=env, capture_output=True, text=True)
    found = re.search(r"go(\d+)\.(\d+)", result.stdout)
    if found and (int(found[1]), int(found[2])) < GO_MINIMUM:
        raise MissingTool("axlm needs Go %s or newer to build; this is %s.%s" % (want, found[1], found[2]))
    if result.returncode != 0:
        raise MissingTool("axlm needs Go %s or newer to build; 'go version' failed: %s" % (want, result.stderr.strip()))


def check_cc():
    # go knows its own default, which is not the same everywhere.
    result = subprocess.run(["go", "env", "CC"], cwd=tempfile.gettempdir(), capture_output=True, text=True)
    command = shlex.split(result.stdout) or ["cc"]
    if shutil.which(command[0]) is None:
        raise MissingTool("axlm needs a C compiler to build (set CC); there is no '%s' on PATH" % command[0])


def check_cxx():
    command = cxx()
    need = "axlm needs a C++20 compiler to build (GCC 10, Clang 10 or newer; set CXX)"
    if shutil.which(command[0]) is None:
        raise MissingTool("%s; there is no '%s' on PATH" % (need, command[0]))
    probe = [*command, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    if subprocess.run(probe, input=CXX_PROBE, capture_output=True, text=True).returncode != 0:
        raise MissingTool("%s; '%s' does not compile C++20" % (need, " ".join(command)))


def check_build():
    """Everything that compiling axlm needs."""
    for check in (check_python, check_python_headers, check_go, check_cc, check_cxx):
        check()


if __name__ == "__main__":
    try:
        check_build()
        check_venv()
    except MissingTool as missing:
        sys.exit(str(missing))
