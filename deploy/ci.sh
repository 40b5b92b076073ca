#!/bin/sh
# Runs evals in a job of CI, or goes on with those that an earlier job has left suspended:
#
#   sh ci.sh FOLDER ID [ARGUMENT OF evalrun run]...
#
# FOLDER is for what the job keeps. If it has run.tar.zst, that run is unpacked and resumed. Otherwise
# the run ID is started, unless EVALS_RESUME is "true". If EVALS_APPROVE is "true", whoever has released
# the job approves what the unpacked run asks people. Afterwards FOLDER has results.json, junit.xml, summary.md, outputs (run, verdict,
# score, as lines of NAME=VALUE), compared.md if there is a baseline.json of another run, and run.tar.zst
# if something is still suspended; with EVALS_PASSPHRASE that file is encrypted, which runs need whose agents have homes
# or secrets. The exit code is that of evalrun, but 0 for 75 if EVALS_KEEP is "true".
set -eu
passphrase=${EVALS_PASSPHRASE:-}
unset EVALS_PASSPHRASE # no agent gets it
sealed() { # pack or unpack, with the passphrase if there is one
	if [ -z "$passphrase" ]; then
		evalrun "$@"
		return
	fi
	key=$(mktemp)
	printf '%s' "$passphrase" >"$key"
	if evalrun "$@" --passphrase-file "$key"; then rm "$key"; else rm "$key" && return 1; fi
}
out=$1 id=$2
shift 2
mkdir -p "$out"
rm -f "$out/results.json" "$out/junit.xml" "$out/summary.md" "$out/compared.md"
printf 'run=%s\nverdict=error\nscore=\n' "$id" >"$out/outputs" # until the end is reached

code=0
if [ -f "$out/run.tar.zst" ]; then
	sealed unpack "$out/run.tar.zst"
	rm "$out/run.tar.zst" # what is in it goes on here, and only here
	if [ "${EVALS_APPROVE:-}" = true ]; then
		waiting=$(evalrun triggers "$id")
		echo "$waiting" | awk '/ TASK /{print $1}' |
			xargs -r -n 1 evalrun approve --by "${GITHUB_ACTOR:-${GITLAB_USER_LOGIN:-CI}}"
	fi
	evalrun resume "$id" -o "$out/results.json" --junit "$out/junit.xml" --summary "$out/summary.md" || code=$?
elif [ "${EVALS_RESUME:-}" = true ]; then
	echo "there is no $out/run.tar.zst: no earlier job has kept a suspended run" >&2
	exit 2
else
	evalrun run --run-id "$id" -o "$out/results.json" --junit "$out/junit.xml" --summary "$out/summary.md" "$@" || code=$?
fi
case $code in
0) verdict=passed ;;
1) verdict=failed ;;
5) verdict=undecided ;;
75) verdict=suspended ;;
*) verdict=error ;; # nothing that was wrong is taken for a score
esac
if [ "$code" = 75 ]; then
	sealed pack "$id" -o "$out/run.tar.zst" ${passphrase:+--with-payloads}
fi
score=
if [ -f "$out/results.json" ]; then
	score=$(sed -n '/^  "summary": {/,/^  }/s/^    "score": \([0-9.e-]*\),*$/\1/p' "$out/results.json")
fi
printf 'run=%s\nverdict=%s\nscore=%s\n' "$id" "$verdict" "$score" >"$out/outputs"
if [ -f "$out/baseline.json" ] && [ -f "$out/results.json" ]; then
	evalrun compare "$out/baseline.json" "$out/results.json" --format markdown -o "$out/compared.md" ||
		rm -f "$out/compared.md" # the runs have nothing in common, or one is not final; compare has said it
fi
if [ "$code" = 75 ] && [ "${EVALS_KEEP:-}" = true ]; then
	exit 0
fi
exit "$code"
