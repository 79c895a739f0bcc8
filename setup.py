"""Builds axlm's two native parts into axlm/_native; everything else is in pyproject.toml.

1. libaxlmmlx: mlxc/shim/*.cpp, compiled against the MLX wheel of the build environment. It finds libmlx at run time
   by an rpath relative to itself, in the mlx package installed beside axlm.
2. The Go core: gopy generates a Python binding of pybridge, which is compiled as one C shared library.

A wheel is built in a folder of its own, which is removed at the end: nothing is written beside the sources, which may
be read-only, and builds may run at the same time. AXLM_BUILD names a folder that keeps what the next one can use again.
"""

import atexit
import concurrent.futures
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT))  # a PEP 517 build does not put the project's folder there

import toolcheck  # noqa: E402

MODULE = "axlmgo"  # what Python imports; its compiled half is _axlmgo
BRIDGE = "axlm/pybridge"  # the Go package that gopy exports
SHIM = "libaxlmmlx.dylib" if sys.platform == "darwin" else "libaxlmmlx.so"
MACOS_MINIMUM = "14.0"  # that of mlx-metal's wheels

SCRATCH = Path(tempfile.mkdtemp(prefix="axlm-build-")).resolve()
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)
KEPT = Path(os.environ.get("AXLM_BUILD") or SCRATCH / "kept").resolve()

# The same sources give the same wheel: archive times are fixed, and paths of this machine stay out of the binaries.
os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")  # 1980-01-01, the earliest that a zip archive can hold
if sys.platform == "darwin":
    os.environ.setdefault("MACOSX_DEPLOYMENT_TARGET", MACOS_MINIMUM)


def run(command: list, **options) -> None:
    """Run one build command; its failure ends the build with the command's name and status."""
    command = [str(part) for part in command]
    try:
        subprocess.run(command, check=True, **options)
    except subprocess.CalledProcessError as error:
        sys.exit(f"axlm: '{shlex.join(command)}' failed with status {error.returncode}; its messages are above")


def find_mlx() -> Path:
    """The mlx package folder that holds MLX's headers and libmlx."""
    spec = importlib.util.find_spec("mlx")
    for folder in spec.submodule_search_locations or [] if spec else []:
        if (Path(folder) / "include" / "mlx" / "array.h").exists():
            return Path(folder)
    sys.exit("axlm: MLX's headers are not in the build environment; install mlx-cpu (Linux) or mlx-metal (macOS)")


def mlx_version(mlx: Path) -> str:
    """The version of the MLX whose headers lie in `mlx`."""
    text = (mlx / "include" / "mlx" / "version.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^#define MLX_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text, re.MULTILINE))


def build_shim(output: Path, objects: Path) -> None:
    """Compile mlxc/shim/*.cpp and link them into `output`; objects of unchanged sources are reused."""
    mlx = find_mlx()
    # The loader refuses another version: the C++ ABI changes with every release.
    (output.parent / "mlx_version").write_text(mlx_version(mlx) + "\n", encoding="ascii")
    sources = sorted((ROOT / "mlxc" / "shim").glob("*.cpp"))
    headers = sorted(path for path in (ROOT / "mlxc" / "shim").iterdir() if path.suffix in (".h", ".hpp"))
    flags = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", *shlex.split(os.environ.get("CXXFLAGS", ""))]
    common = hashlib.sha256(" ".join([*toolcheck.cxx(), *flags, mlx_version(mlx)]).encode())
    for header in headers:
        common.update(header.read_bytes())

    def compile_one(source: Path) -> Path:
        digest = common.copy()
        digest.update(source.read_bytes())
        target = objects / f"{source.stem}-{digest.hexdigest()[:16]}.o"
        if not target.exists():
            partial = objects / f"{target.stem}-{os.getpid()}.partial"  # another build may compile it, too
            paths = [f"-ffile-prefix-map={ROOT}=axlm", f"-ffile-prefix-map={mlx}=mlx", "-isystem", mlx / "include"]
            run([*toolcheck.cxx(), *flags, *paths, "-c", source, "-o", partial])
            partial.replace(target)
        return target

    objects.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        compiled = list(pool.map(compile_one, sources))
    if sys.platform == "darwin":
        link = ["-dynamiclib", f"-Wl,-install_name,@rpath/{SHIM}", "-Wl,-rpath,@loader_path/../../mlx/lib"]
    else:
        # defs: a function that this libmlx lacks stops the build here, not the program at its first call.
        link = ["-shared", "-s", "-Wl,-z,defs", "-Wl,-rpath,$ORIGIN/../../mlx/lib"]
    flags = [*link, *shlex.split(os.environ.get("LDFLAGS", ""))]
    run([*toolcheck.cxx(), *compiled, "-o", output, f"-L{mlx / 'lib'}", "-lmlx", *flags])


def patch(path: Path, pattern: str, replacement: str) -> None:
    """Edit a generated file; a pattern that no longer occurs means that gopy changed and is an error."""
    text, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if count == 0:
        sys.exit(f"axlm: {path.name}, generated by gopy, has no line like {pattern!r}; was gopy's version changed?")
    path.write_text(text, encoding="utf-8")


def sort_blocks(path: Path, block: str) -> None:
    """Sort neighbouring blocks of a generated file: gopy writes functions in another order every time."""
    text = path.read_text(encoding="utf-8")
    runs = re.compile(f"(?:{block})+", re.MULTILINE)
    blocks = re.compile(block, re.MULTILINE)
    text = runs.sub(lambda run: "".join(sorted(blocks.findall(run[0]))), text)
    path.write_text(text, encoding="utf-8")


def copy_module(target: Path) -> None:
    """Copy the Go module, without its tests."""
    target.mkdir(parents=True)
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(ROOT / name, target / name)
    for name in ("gocore", "mlxc", "pybridge"):
        ignored = shutil.ignore_patterns("*_test.go", "testdata", "shim")
        # copyfile: what is copied of a read-only tree can be removed.
        shutil.copytree(ROOT / name, target / name, ignore=ignored, copy_function=shutil.copyfile)


def build_core(output: Path, scratch: Path) -> None:
    """Generate and compile the Python binding of pybridge, and put its three files into `output`."""
    # gopy's output imports our packages, so it must lie inside the Go module, here a copy of it. The name is fixed for
    # each Python because it ends up in the binary.
    module, tools = scratch / "module", scratch / "tools"
    copy_module(module)
    work = module / f"_gopy_{sys.implementation.cache_tag}"
    cflags = f"-I{sysconfig.get_path('include')} -O2 -fPIC -Wno-implicit-function-declaration -Wno-int-conversion"
    env = dict(
        os.environ,
        CGO_ENABLED="1",
        GOTOOLCHAIN="local",
        GOWORK="off",
        GOFLAGS="-mod=readonly -buildvcs=false -trimpath",
        CGO_CFLAGS=cflags,
        CGO_LDFLAGS="-undefined dynamic_lookup" if sys.platform == "darwin" else "",
    )
    tools.mkdir(parents=True, exist_ok=True)
    run(["go", "build", "-o", f"{tools}{os.sep}", "tool"], cwd=module, env=env)  # go.mod's: gopy, goimports
    env["PATH"] = f"{tools}{os.pathsep}{env['PATH']}"  # gopy calls goimports by name
    extension = f"_{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"
    generate = [tools / "gopy", "gen", f"-vm={sys.executable}", f"-output={work}", f"-name={MODULE}"]
    run([*generate, "-rename=true", "-no-make", BRIDGE], cwd=module, env=env)
    # gopy links libpython with a path of this machine: an extension module has both from the interpreter.
    patch(work / f"{MODULE}.go", r"^#cgo .*\n", "")
    for generated in (f"{MODULE}.go", "go.py", "pybridge.py"):
        patch(work / generated, r"^(# )?gopy gen .*\n", "")
    for generated in ("go.py", "pybridge.py"):  # importing a module must not move the process
        patch(work / generated, r"^(cwd = os\.getcwd\(\)|currentdir = .*|os\.chdir\(.*\))\n", "")
    sort_blocks(work / f"{MODULE}.go", r"^//export pybridge_\w+\n(?:.*\n)+?}\n\n")
    sort_blocks(work / "build.py", r"^add_checked_\w+\(mod, 'pybridge_.*\n")
    sort_blocks(work / "pybridge.py", r"^def \w+\(.*\n(?:\t.*\n)+")
    run([tools / "goimports", "-w", f"{MODULE}.go"], cwd=work, env=env)
    header = ["go", "tool", "cgo", "-exportheader", f"{MODULE}_go.h", "-objdir", "_cgo", "--"]
    run([*header, *shlex.split(cflags), f"{MODULE}.go"], cwd=work, env=env)
    shutil.rmtree(work / "_cgo")
    run([sys.executable, "build.py"], cwd=work, env=env)  # pybindgen: axlmgo.c, which includes that header
    library = ["go", "build", "-buildmode=c-shared", "-ldflags=-s -w -buildid=", "-o", extension, "."]
    run(library, cwd=work, env=env)
    shutil.copy2(work / extension, output / extension)
    shutil.copy2(work / "go.py", output / "go.py")
    shutil.copy2(work / "pybridge.py", output / f"{MODULE}.py")


class BuildPython(build_py):
    """Starts from an empty build folder: setuptools would ship modules that were deleted since the last build."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildNative(build_ext):
    """Builds the parts named above instead of compiling the (empty) extension, which only sets the wheel's tag."""

    def run(self) -> None:
        try:
            toolcheck.check_build()
        except toolcheck.MissingTool as missing:
            sys.exit(str(missing))
        base = ROOT / "python" if self.inplace else Path(self.build_lib).resolve()
        output = base / "axlm" / "_native"
        output.mkdir(parents=True, exist_ok=True)
        build_shim(output / SHIM, KEPT / "shim")
        build_core(output, SCRATCH)


options = {}
if not {"sdist", "editable_wheel", "develop"} & set(sys.argv):  # those want their metadata beside the sources
    options["build"] = {"build_base": str(SCRATCH / "build")}
    options["egg_info"] = {"egg_base": str(SCRATCH)}
if sys.platform == "darwin" and os.uname().machine == "arm64":
    # Python's own tag may say macOS 10.9 and x86-64 too, where no MLX runs.
    options["bdist_wheel"] = {"plat_name": f"macosx_{MACOS_MINIMUM.replace('.', '_')}_arm64"}

setup(
    ext_modules=[Extension(f"axlm._native._{MODULE}", sources=[])],
    cmdclass={"build_py": BuildPython, "build_ext": BuildNative},
    options=options,
)
