// Package exports reads what `evalrun report --format inspect|atif` writes with the programs that
// it is for: Inspect's package inspect_ai, and the validator of Harbor's package.
//
// Each test needs a virtual environment and is skipped without it:
//
//	python3 -m venv internal/test/exports/.venv-inspect
//	internal/test/exports/.venv-inspect/bin/pip install -r internal/test/exports/inspect.lock
//	python3.12 -m venv internal/test/exports/.venv-harbor
//	internal/test/exports/.venv-harbor/bin/pip install -r internal/test/exports/harbor.lock
//	go test ./internal/test/exports
//
// Inspect's needs Python 3.11 or later, Harbor's 3.12. Environment variables:
// EVALRUN_INSPECT=required and EVALRUN_HARBOR=required fail where an environment is missing;
// EVALRUN_INSPECT_PYTHON and EVALRUN_HARBOR_PYTHON name other programs, which are called as Python
// is. That of Harbor may run in a container: it is given its script as an argument and reads stdin.
package exports
