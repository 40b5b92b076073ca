#!/bin/sh
# Installs evalrun: sh install.sh [FROM [FOLDER]]
#
# FROM is one of these; a folder or a file may be in this repository, and a URL may need no password:
#   a checkout of evalrun, which Go builds: a folder (a submodule, say), or the URL of a repository,
#     with #BRANCH or #TAG behind it if need be;
#   what a release has: the program, such as evalrun_linux_amd64, or a .tar.gz with it, as a file or
#     the URL of one.
# Without FROM it is the folder evalrun or the file evals/evalrun_OS_ARCH, if it is there, else
# https://github.com/evalrun/evalrun. EVALRUN_SHA256 is the sum that a file must have.
set -eu
here=$(dirname "$0")
os=$(uname -s | tr '[:upper:]' '[:lower:]')
arch=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
from=${1:-}
if [ -z "$from" ] && [ -d evalrun/cmd/evalrun ]; then from=evalrun; fi
if [ -z "$from" ] && [ -f "$here/evalrun_${os}_$arch" ]; then from=$here/evalrun_${os}_$arch; fi
from=${from:-https://github.com/evalrun/evalrun}
to=${2:-$HOME/.local/bin}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fail() {
	echo "install.sh: evalrun cannot be installed from $from: $1." >&2
	echo "Say where it is to be taken from in the variable EVALRUN_FROM (on GitHub: Settings, Secrets and variables," >&2
	echo "Actions, Variables): a checkout of evalrun, or the program of a release; see $0." >&2
	exit 1
}
build() { (cd "$1" && CGO_ENABLED=0 go build -o "$tmp/evalrun" ./cmd/evalrun) || fail "it cannot be built"; }
file() {
	if [ -n "${EVALRUN_SHA256:-}" ]; then
		echo "$EVALRUN_SHA256  $1" | { sha256sum -c - || shasum -a 256 -c -; } >/dev/null 2>&1 || fail "its SHA-256 is not $EVALRUN_SHA256"
	fi
	case $from in
	*.tar.gz | *.tgz)
		mkdir "$tmp/archive"
		tar -xzf "$1" -C "$tmp/archive" || fail "it is no archive"
		found=$(find "$tmp/archive" -type f \( -name evalrun -o -name "evalrun_${os}_$arch" \) | head -n 1)
		source=$(find "$tmp/archive" -type d -path '*/cmd/evalrun' | head -n 1)
		if [ -n "$found" ]; then
			cp "$found" "$tmp/evalrun"
		elif [ -n "$source" ]; then
			build "$source/../.."
		else
			fail "the archive has neither a program evalrun_${os}_$arch nor a checkout"
		fi
		;;
	*) cp "$1" "$tmp/evalrun" ;;
	esac
}
clone() {
	ref=
	case $from in *'#'*) ref=${from#*#} ;; esac
	git clone -q --depth 1 ${ref:+--branch "$ref"} "${from%%#*}" "$tmp/checkout" || fail "it cannot be cloned"
	build "$tmp/checkout"
}

if [ -d "$from" ]; then
	build "$from"
elif [ -f "$from" ]; then
	file "$from"
else
	case $from in
	https://github.com/*/*/*) ;;
	https://github.com/* | *.git | *.git'#'*) clone=yes ;;
	https://*) ;;
	*) fail "there is no such folder or file" ;;
	esac
	if [ -n "${clone:-}" ]; then
		clone
	else
		curl -fsSL -o "$tmp/download" "$from" || fail "it cannot be downloaded"
		file "$tmp/download"
	fi
fi
mkdir -p "$to"
chmod 755 "$tmp/evalrun"
"$tmp/evalrun" version || fail "the program does not run here ($os, $arch)"
mv "$tmp/evalrun" "$to/evalrun"
