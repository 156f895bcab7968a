"""Lets PyTorch's CUDA build load on a machine for which nobody fetched four gigabytes of CUDA.

Its libraries name cuDNN, cuBLAS and so on, so that the dynamic linker wants them, though a computation on the CPU
never calls into them. This writes, beside PyTorch, a library of each missing name in which every function that
PyTorch names ends the program. What computes on the CPU is untouched. The small ones that PyTorch does call when it
loads (the runtime and CUPTI) must be the real ones. `--remove` takes the empty ones away again.
"""

import pathlib
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile

# Libraries whose symbols carry no version, so that only the prefix tells where a symbol belongs.
PREFIXES = {"libnccl": "nccl", "libcusparseLt": "cusparseLt", "libcufile": "cuFile"}


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True, check=True).stdout


def wanted(libraries):
    """What the libraries name: files, (file -> version -> symbols), symbols without a version."""
    files, versioned, loose = set(), {}, set()
    for library in libraries:
        files |= set(re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl)\S+)\]", readelf("-d", library)))
        home, file = {}, None
        for line in readelf("-V", library).splitlines():
            if found := re.search(r"File: (\S+)", line):
                file = found[1]
            elif found := re.search(r"Name: (\S+).*Version: \d+", line):
                home[found[1]] = file
        undefined = r"(?:FUNC|OBJECT|NOTYPE)\s+GLOBAL\s+DEFAULT\s+UND (\w+)(?:@(\S+))?"
        for symbol, version in re.findall(undefined, readelf("-s", "--dyn-syms", library)):
            if not version:
                loose.add(symbol)
            elif version in home:
                versioned.setdefault(home[version], {}).setdefault(version, set()).add(symbol)
    return files, versioned, loose


def write(target, versions, symbols):
    code = "".join(f"void {symbol}(void) {{ __builtin_trap(); }}\n" for symbol in sorted(symbols))
    command = ["cc", "-w", "-shared", "-fPIC", "-x", "c", "-", "-o", str(target), f"-Wl,-soname,{target.name}"]
    with tempfile.NamedTemporaryFile("w", suffix=".map") as script:
        if versions:
            script.write("".join(f"{v} {{ {'; '.join(sorted(names))}; }};\n" for v, names in versions.items()))
            script.flush()
            command.append(f"-Wl,--version-script={script.name}")
        subprocess.run(command, input=code, text=True, check=True)


def main():
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return  # PyTorch's other builds name no CUDA.
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    folder = site / "torch" / "lib"
    made = folder / "stubs.list"
    if sys.argv[1:] == ["--remove"]:
        for file in made.read_text().split() if made.exists() else []:
            (folder / file).unlink(missing_ok=True)
        return
    real = {path.name for path in site.glob("nvidia/*/lib/*.so*")}
    # These two are loaded only when a computation on a card asks for them.
    late = ("libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so")
    libraries = [path for path in folder.glob("lib*.so") if path.name not in late]
    files, versioned, loose = wanted(libraries)
    files = sorted(file for file in files - real if ".so." in file)
    for file in files:
        versions = versioned.get(file, {})
        prefix = PREFIXES.get(file.split(".")[0])
        symbols = set().union(*versions.values()) if versions else {s for s in loose if prefix and s.startswith(prefix)}
        write(folder / file, versions, symbols)
    made.write_text("".join(f"{file}\n" for file in files))
    print(f"{len(files)} libraries for graphics cards replaced by empty ones: {', '.join(files)}")


if __name__ == "__main__":
    main()
