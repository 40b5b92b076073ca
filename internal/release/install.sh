#!/bin/sh
# Installs evalrun: sh install.sh [FROM [FOLDER]]
#
# FROM is a folder, or a URL, with the files of a release; without it, the newest release. The program
# goes into FOLDER, by default ~/.local/bin, with the programs that it puts into containers. Nothing else
# is written: to remove it, remove FOLDER/evalrun and FOLDER/evalrun-inside_*.
# The archive must have the sum that SHA256SUMS of the same place says.
set -eu
from=${1:-https://github.com/evalrun/evalrun/releases/latest/download}
to=${2:-$HOME/.local/bin}
os=$(uname -s | tr '[:upper:]' '[:lower:]')
arch=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
name=evalrun_${os}_$arch
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fail() {
	echo "install.sh: $1" >&2
	exit 1
}
get() {
	if [ -d "$from" ]; then
		[ -f "$from/$1" ] || fail "$from has no $1: there is no program for this system ($os, $arch) in it"
		cp "$from/$1" "$tmp/$1"
	elif command -v curl >/dev/null; then
		curl -fsSL -o "$tmp/$1" "$from/$1" || fail "$from/$1 cannot be downloaded"
	elif command -v wget >/dev/null; then
		wget -q -O "$tmp/$1" "$from/$1" || fail "$from/$1 cannot be downloaded"
	else
		fail "curl or wget is needed to download $from/$1; or give a folder that has it: sh install.sh FOLDER"
	fi
}

case $os/$arch in
linux/amd64 | linux/arm64 | darwin/amd64 | darwin/arm64) ;;
*) fail "there is no program for this system ($os, $arch): it is built with Go, see https://github.com/evalrun/evalrun" ;;
esac
get SHA256SUMS
get "$name.tar.gz"
grep " $name.tar.gz\$" "$tmp/SHA256SUMS" >"$tmp/sum" || fail "SHA256SUMS of $from does not name $name.tar.gz"
(
	cd "$tmp"
	if command -v sha256sum >/dev/null; then sha256sum -c sum; else shasum -a 256 -c sum; fi
) >/dev/null 2>&1 || fail "$name.tar.gz of $from is not what SHA256SUMS says: it was cut or changed; nothing was installed"
tar -xzf "$tmp/$name.tar.gz" -C "$tmp" "$name" || fail "$name.tar.gz cannot be unpacked"
mkdir -p "$to" 2>/dev/null && cp "$tmp/$name/evalrun" "$to/.evalrun.new" 2>/dev/null ||
	fail "$to cannot be written: give another folder: sh install.sh \"$from\" FOLDER"
chmod 755 "$to/.evalrun.new"
version=$("$to/.evalrun.new" version) || {
	rm -f "$to/.evalrun.new"
	fail "the program does not run here ($os, $arch)"
}
for program in "$tmp/$name/inside"/*; do
	[ ! -f "$program" ] || { cp "$program" "$to/.evalrun.inside" && mv "$to/.evalrun.inside" "$to/${program##*/}"; }
done
mv "$to/.evalrun.new" "$to/evalrun"
echo "$(echo "$version" | head -n 1) is in $to/evalrun"
first=$(command -v evalrun || true)
if [ -z "$first" ]; then
	echo "$to is not on PATH: add it, or call the program by its path"
elif [ "$first" != "$to/evalrun" ]; then
	echo "another evalrun comes first on PATH: $first"
fi
