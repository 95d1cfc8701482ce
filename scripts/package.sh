#!/usr/bin/env bash
# Builds the program and packs it into dist/: a wheel, a tarball, a .deb and, where podman or docker runs, a container image.
#
#   scripts/package.sh [wheel] [tarball] [deb] [container]      none named: all
#
#   wheel      dist/rlalgo-VERSION-py3-none-manylinux_…whl: for a Python that has (or gets) torch, whose LibTorch it uses
#   tarball    dist/rlalgo-VERSION-linux-x86_64.tar.gz: bin/, lib/ with LibTorch's CPU libraries, share/; runs where it is unpacked
#   deb        dist/rlalgo_VERSION_amd64.deb: the same under /usr
#   container  image rlalgo:VERSION (Containerfile), made of the .deb
#
# What the program needs of a system is its glibc and libstdc++; the last lines say which versions.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
build=$root/build/release
dist=$root/dist

kinds=()
for word in "$@"; do
  case $word in
    wheel | tarball | deb | container) kinds+=("$word") ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "package.sh: unknown word $word (see --help)" >&2; exit 2 ;;
  esac
done
[ ${#kinds[@]} -gt 0 ] || kinds=(wheel tarball deb container)
wanted() { [[ " ${kinds[*]} " == *" $1 "* ]]; }
say() { echo "[package] $*" >&2; }

scripts/setup.sh --packaging -- rlalgo
python=${RLALGO_DEPS_DIR:-$HOME/.cache/rlalgo}/packaging/bin/python
version=$(sed -n 's/^project(rlalgo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
mkdir -p "$dist"
work=$(mktemp -d "$build/package-XXXXXX")
trap 'rm -rf "$work"' EXIT

# The tag of a wheel names the oldest glibc that will do; libstdc++ counts by the glibc of the systems that came with it.
wheel() {
  "$python" -m pip wheel . -q --no-build-isolation --no-deps --disable-pip-version-check --no-cache-dir -w "$work/wheel" \
    -C build-dir=build/pack -C "cmake.define.RLALGO_PROGRAM=$build/bin/rlalgo"
  local tag
  tag=$("$python" - "$work"/wheel/*.whl <<'PY'
import json, platform, sys, zipfile
build = json.loads(zipfile.ZipFile(sys.argv[1]).read("rlalgo/share/rlalgo/build.json"))
number = lambda text: tuple(int(part) for part in text.split("."))
with_libstdcxx = [((3, 4, 29), (2, 34)), ((3, 4, 30), (2, 35)), ((3, 4, 32), (2, 38)), ((3, 4, 33), (2, 39))]
glibc = max(number(build["glibc"])[:2], next((g for x, g in with_libstdcxx if x >= number(build["glibcxx"])), (2, 41)))
print(f"manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}")
PY
  )
  (cd "$work/wheel" && "$python" -m wheel tags --remove --platform-tag "$tag" ./*.whl >/dev/null)
  rm -f "$dist"/rlalgo-*.whl
  mv "$work"/wheel/*.whl "$dist/"
}

packed() { # GENERATOR PATTERN
  rm -f "$dist"/$2
  (cd "$work" && cpack --config "$build/CPackConfig.cmake" -G "$1" -B "$work/$1" >"$work/$1.log" 2>&1) || { cat "$work/$1.log" >&2; exit 1; }
  mv "$work/$1"/$2 "$dist/"
}

container() {
  local tool
  for tool in podman docker; do
    if command -v "$tool" >/dev/null && "$tool" info >/dev/null 2>&1; then
      "$tool" build -t "rlalgo:$version" -f Containerfile . >&2
      say "image rlalgo:$version, made by $tool"
      return
    fi
  done
  say "no image: neither podman nor docker runs here. Elsewhere: podman build -t rlalgo:$version -f Containerfile . (it takes the .deb of dist/)"
}

if wanted wheel; then wheel; fi
if wanted tarball; then packed TGZ 'rlalgo-*.tar.gz'; fi
if wanted deb || { wanted container && ! compgen -G "$dist/rlalgo_*.deb" >/dev/null; }; then packed DEB 'rlalgo_*.deb'; fi
if wanted container; then container; fi
needs() { objdump -T "$build/bin/rlalgo" | grep -o "$1_[0-9.]*[0-9]" | sort -uV | tail -1; }
say "in $dist, for systems with $(needs GLIBC) and $(needs GLIBCXX) or newer (GLIBC_2.34 and GLIBCXX_3.4.30: Debian 12, Ubuntu 22.04, Fedora 36):"
(cd "$dist" && ls -l --block-size=M | awk 'NF > 5 {print "    " $5 "\t" $NF}' >&2)
